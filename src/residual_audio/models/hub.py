"""The model hub: asked once whether it answers, and never waited for without an end."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from residual_audio.errors import InputError, ModelError

if TYPE_CHECKING:
    from huggingface_hub import HfApi

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
        with urllib.request.urlopen(question, timeout=PATIENCE_S):  # nosec B310 # http(s) only
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


def check_repository(repository: str) -> None:
    """Refuse, before any work, what could not be pushed in the end."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repository)
    except HFValidationError as error:
        raise InputError(f"'{repository}' is no repository id like owner/name: {error}") from error
    if not hub_reachable():
        raise ModelError(
            "the Hugging Face hub cannot be reached, so nothing can be pushed: export without "
            "--push, and upload the folder later with `hf upload`"
        )


def push(files: Mapping[str, Path], repository: str) -> str:
    """Files by their names in the repository, as one commit; a new repository is private.

    Gives its address.
    """
    from huggingface_hub import CommitOperationAdd
    from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError

    check_repository(repository)
    api = _api()
    operations = [CommitOperationAdd(name, str(path)) for name, path in files.items()]
    try:
        where = api.create_repo(repository, exist_ok=True, private=True)
        api.create_commit(
            repository, operations=operations, commit_message="Written by ResiDual Audio"
        )
    except LocalTokenNotFoundError as error:
        raise ModelError("nobody is logged in to the hub: run `hf auth login` first") from error
    except HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else "no answer"
        raise ModelError(
            f"the hub did not take '{repository}' ({status}): the files are written here; check "
            "`hf auth whoami` and whether you may write there"
        ) from error
    return str(where)


def _api() -> HfApi:
    from huggingface_hub import HfApi

    return HfApi()
