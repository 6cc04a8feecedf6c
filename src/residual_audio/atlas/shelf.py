"""Where the page's data lie: one small script a piece, loaded when asked for; or all in one file.

A page that is opened from the file system may not fetch files, but it may load scripts: each piece
registers itself by name. In a single file the same pieces are blocks of JSON, which no browser
runs. Text from data is never markup: `<` is written as an escape.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import zlib
from collections.abc import Mapping, Sequence
from html import escape, unescape
from pathlib import Path

from residual_audio.errors import InputError
from residual_audio.files import json_ready, write_text

WEB = Path(__file__).parent / "web"
SCRIPTS = (
    "core.js",
    "format.js",
    "colour.js",
    "chart.js",
    "audio.js",
    "joint.js",
    "front.js",
    "answer.js",
    "two_runs.js",
    "map.js",
    "scatter.js",
    "head.js",
    "attention.js",
    "times.js",
    "clip.js",
    "feature.js",
    "engine.js",
    "gains_file.js",
    "pictures.js",
    "sliders.js",
    "move.js",
    "search.js",
    "app.js",
)
"""Sources of the page, in the order in which they are joined."""
STYLES = ("base.css", "map.css", "pages.css", "small.css")
SHELL = "index.html"
FILES = ("index.html", "atlas.js", "atlas.css", "data")
"""All that an atlas folder holds: nothing else in it is touched."""


class Shelf:
    """Takes pieces of data by name and puts them where the page finds them."""

    def __init__(self, folder: Path, single_file: bool = False) -> None:
        self.folder = folder
        self.single_file = single_file
        self.files: list[Path] = []
        self._blocks: dict[str, str] = {}
        if folder.is_file():
            raise InputError(f"'{folder}' is a file: the atlas is a folder")
        shutil.rmtree(folder / "data", ignore_errors=True)
        for name in FILES[:3]:
            (folder / name).unlink(missing_ok=True)

    def put(self, name: str, value: object) -> None:
        """A piece of data; `name` is like `head/s3.b0.h0`."""
        text = as_json(value)
        if self.single_file:
            self._blocks[name] = text
            return
        path = self.folder / "data" / f"{name}.js"
        # hundreds of files, made again by the same command: waiting for the disk takes longest
        self.files.append(write_text(path, _script(name, text), durable=False))

    def close(self, title: str) -> Path:
        """Write the page itself and return its path."""
        if self.single_file:
            page = single_page(self._blocks, title)
        else:
            policy = "script-src 'self'; style-src 'self'"
            head = '<link rel="stylesheet" href="atlas.css">'
            page = _page(policy, head, '<script src="atlas.js"></script>', title)
            self.files.append(write_text(self.folder / "atlas.js", _joined(SCRIPTS)))
            self.files.append(write_text(self.folder / "atlas.css", _joined(STYLES)))
        path = write_text(self.folder / SHELL, page)
        self.files.append(path)
        return path


def single_page(blocks: Mapping[str, str], title: str) -> str:
    """All pieces (name → JSON) and the page in one file."""
    script, style = _joined(SCRIPTS), _joined(STYLES)
    policy = f"script-src '{_digest(script)}'; style-src '{_digest(style)}'"
    data = [
        f'<script type="application/json" data-piece="{name}" '
        f'data-check="{_check(text)}">{text}</script>'
        for name, text in blocks.items()
    ]
    body = "\n".join([*data, f"<script>{script}</script>"])
    return _page(policy, f"<style>{style}</style>", body, title)


def as_single_page(page: Path) -> str:
    """An atlas on disk as one file, for where it cannot load its pieces."""
    whole = page.read_text(encoding="utf-8")
    data = page.parent / "data"
    if "data-piece=" in whole or not data.is_dir():
        return whole
    blocks = {}
    for path in sorted(data.rglob("*.js")):
        name = path.relative_to(data).with_suffix("").as_posix()
        text = path.read_text(encoding="utf-8")
        quoted = text[text.index(",'") + 2 : text.rindex("')")]
        blocks[name] = re.sub(r"\\(.)", r"\1", quoted)
    found = re.search(r"<title>(.*?)</title>", whole, re.DOTALL)
    return single_page(blocks, unescape(found[1]) if found else "head atlas")


def _joined(names: Sequence[str]) -> str:
    return "\n".join((WEB / name).read_text(encoding="utf-8") for name in names)


def _page(policy: str, head: str, body: str, title: str) -> str:
    page = (WEB / SHELL).read_text(encoding="utf-8")
    # the title comes last: a model's name must not be able to hold another placeholder
    for name, text in {"POLICY": policy, "STYLE": head, "BODY": body}.items():
        page = page.replace(f"<!--{name}-->", text)
    return page.replace("<!--TITLE-->", escape(title))


def as_json(value: object) -> str:
    """JSON in which no text can end a script."""
    text = json.dumps(json_ready(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # outside strings JSON has none of these characters
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _script(name: str, text: str) -> str:
    """A piece that registers itself: its JSON as a string, with a checksum that the page proves."""
    quoted = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"RA.put({as_json(name)},{_check(text)},'{quoted}');\n"


def _check(text: str) -> int:
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))


def _digest(text: str) -> str:
    """How a content security policy names a script or style of the page itself."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
