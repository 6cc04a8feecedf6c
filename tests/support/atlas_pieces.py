"""The data of an atlas as the page reads them."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np


def piece(run: Path, name: str) -> Any:
    text = (run / "atlas" / "data" / f"{name}.js").read_text()
    start = f"RA.put({json.dumps(name)},"
    assert text.startswith(start)
    check, _, quoted = text[len(start) :].rstrip().removesuffix("');").partition(",'")
    held = re.sub(r"\\(.)", r"\1", quoted)
    assert zlib.crc32(held.encode()) == int(check)
    return json.loads(held)


def unpack(packed: Any) -> np.ndarray:
    data = base64.b64decode(packed["data"])
    if packed["kind"] == "f32":
        return np.frombuffer(data, "<f4").reshape(packed["shape"])
    if packed["kind"] == "u8":
        step = (packed["high"] - packed["low"]) / 255
        return packed["low"] + step * np.frombuffer(data, np.uint8).reshape(packed["shape"])
    scale = np.frombuffer(base64.b64decode(packed["scale"]), "<f4")
    rows = np.frombuffer(data, "<i2").reshape(len(scale), -1) * scale[:, None]
    return rows.reshape(packed["shape"])
