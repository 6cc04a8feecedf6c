"""An atlas opened in a browser from the file system, with what went wrong on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

LONGEST_MS = 30_000


class Page:
    """A page, with what went wrong on it and what it asked for elsewhere."""

    def __init__(self, context: Any, run: Path, folder: str = "atlas") -> None:
        self.url = (run / folder / "index.html").resolve().as_uri()
        self.wrong: list[str] = []
        self.left: list[str] = []
        self.page = context.new_page()
        self.page.set_default_timeout(LONGEST_MS)
        self.page.on("console", lambda m: self.wrong.append(m.text) if m.type == "error" else None)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("request", self._asked)

    def _asked(self, request: Any) -> None:
        if not request.url.startswith(("file:", "data:", "blob:")):
            self.left.append(request.url)

    def go(self, address: str) -> Any:
        if self.page.url.startswith(self.url):
            self.page.evaluate("(to) => { location.hash = to }", address)
        else:
            self.page.goto(self.url + address)
        ready = "(to) => decodeURI(document.querySelector('main').dataset.ready || '') === to"
        self.page.wait_for_function(ready, arg=address)
        return self.page
