"""A method of adaptation as it is given: a config, or the key of one."""

from __future__ import annotations

from residual_audio.adaptation.methods.method import Method
from residual_audio.adaptation.methods.registry import ENTRIES, REFERENCE, Entry, find_entries
from residual_audio.errors import InputError


def entry_of(method: Method | str) -> Entry:
    if not isinstance(method, str):
        return Entry("given", type(method).__name__, "residual", method)
    found = [e for e in find_entries((method,), ENTRIES) if e.key != REFERENCE]
    if len(found) != 1:
        raise InputError(f"'{method}' names {len(found)} methods: give one")
    return found[0]
