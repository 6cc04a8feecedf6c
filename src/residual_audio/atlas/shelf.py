"""Where the page's data lie: one small script a piece, loaded when asked for; or all in one file.

A page that is opened from the file system may not fetch files, but it may load scripts: each piece
registers itself by name. In a single file the same pieces are blocks of JSON, which no browser
runs. Text from data is never markup: `<` is written as an escape.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import zlib
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
    "map.js",
    "scatter.js",
    "head.js",
    "attention.js",
    "times.js",
    "clip.js",
    "feature.js",
    "engine.js",
    "move.js",
    "search.js",
    "app.js",
)
"""Sources of the page, in the order in which they are joined."""
STYLE = "style.css"
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
        script = "\n".join((WEB / name).read_text(encoding="utf-8") for name in SCRIPTS)
        style = (WEB / STYLE).read_text(encoding="utf-8")
        page = (WEB / SHELL).read_text(encoding="utf-8")
        if self.single_file:
            policy = f"script-src '{_digest(script)}'; style-src '{_digest(style)}'"
            head = f"<style>{style}</style>"
            blocks = [
                f'<script type="application/json" data-piece="{name}" '
                f'data-check="{_check(text)}">{text}</script>'
                for name, text in self._blocks.items()
            ]
            body = "\n".join([*blocks, f"<script>{script}</script>"])
        else:
            policy = "script-src 'self'; style-src 'self'"
            head = '<link rel="stylesheet" href="atlas.css">'
            body = '<script src="atlas.js"></script>'
            self.files.append(write_text(self.folder / "atlas.js", script))
            self.files.append(write_text(self.folder / "atlas.css", style))
        # the title comes last: a model's name must not be able to hold another placeholder
        for name, text in {"POLICY": policy, "STYLE": head, "BODY": body}.items():
            page = page.replace(f"<!--{name}-->", text)
        path = write_text(self.folder / SHELL, page.replace("<!--TITLE-->", _escaped(title)))
        self.files.append(path)
        return path


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


def _escaped(text: str) -> str:
    from html import escape

    return escape(text)


def _digest(text: str) -> str:
    """How a content security policy names a script or style of the page itself."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
