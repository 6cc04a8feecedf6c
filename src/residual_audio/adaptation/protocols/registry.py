"""The published protocols that can be run by name. A new one is one file and one line here."""

from __future__ import annotations

from residual_audio.adaptation.protocols.arcioni import ARCIONI
from residual_audio.adaptation.protocols.paolini import PAOLINI
from residual_audio.adaptation.protocols.protocol_recipe import PublishedProtocol
from residual_audio.errors import InputError

PROTOCOLS = {one.name: one for one in (PAOLINI, ARCIONI)}


def find_protocol(name: str) -> PublishedProtocol:
    if name not in PROTOCOLS:
        raise InputError(f"no protocol '{name}': there are {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name]
