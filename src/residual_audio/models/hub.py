"""Whether the model hub can be reached: asked once, so that offline machines do not wait."""

from __future__ import annotations

import os
import socket
from functools import lru_cache
from urllib.parse import urlsplit

PATIENCE_S = 3.0


@lru_cache(maxsize=1)
def hub_reachable() -> bool:
    """False in offline mode or when the hub's host does not answer within a few seconds."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY")):
        return True  # the proxy decides; a direct connection proves nothing
    parts = urlsplit(constants.ENDPOINT)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        with socket.create_connection((parts.hostname or "", port), timeout=PATIENCE_S):
            return True
    except OSError:
        return False
