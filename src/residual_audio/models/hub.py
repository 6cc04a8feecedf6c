"""The model hub: asked once whether it answers, and never waited for without an end."""

from __future__ import annotations

import urllib.error
import urllib.request
from functools import lru_cache

PATIENCE_S = 3.0
"""To the first answer of the hub or of the proxy before it."""
SILENCE_S = 20.0
"""Without a byte in the middle of something."""


@lru_cache(maxsize=1)
def hub_reachable() -> bool:
    """False in offline mode, or when the hub, through the proxy where one is set, does not answer
    within a few seconds: some accept a connection and then say nothing."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE or not constants.ENDPOINT.startswith(("http://", "https://")):
        return False
    question = urllib.request.Request(constants.ENDPOINT, method="HEAD")
    try:
        with urllib.request.urlopen(question, timeout=PATIENCE_S):
            pass
    except urllib.error.HTTPError:
        pass  # an answer too
    except (OSError, ValueError):
        return False
    _end_waiting()
    return True


def _end_waiting() -> None:
    """The hub's own client waits for ever by default."""
    from huggingface_hub.utils import get_session

    client = get_session()
    timeout = getattr(client, "timeout", None)
    if timeout is not None and getattr(timeout, "read", 0) is None:
        client.timeout = SILENCE_S
