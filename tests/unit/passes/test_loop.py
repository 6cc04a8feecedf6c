"""The one loop: order kept, lengths apart, what cannot be heard named."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from residual_audio.errors import AudioError, InputError
from residual_audio.passes.embed import embed_items
from residual_audio.passes.loop import Hearing, hear


def waves(*lengths: int) -> list[np.ndarray]:
    return [np.full((1, n), i, np.float32) for i, n in enumerate(lengths)]


def cut(item: np.ndarray | Exception) -> np.ndarray:
    if isinstance(item, Exception):
        raise item
    return item


@pytest.mark.parametrize("n_threads", [0, 2])
def test_order_is_kept_and_lengths_do_not_mix(n_threads: int) -> None:
    batches = list(hear(waves(4, 4, 6, 4, 4, 4), cut, Hearing("first", 4, n_threads)))
    assert [places for _, places in batches] == [[0, 1], [2], [3], [4, 5]]
    for found, places in batches:
        assert found[:, 0].tolist() == places


def test_batches_go_by_place_whatever_could_be_read_before() -> None:
    items = [*waves(4, 4), AudioError("gone"), *waves(4, 4, 4)]
    skipped: dict[int, Exception] = {}
    heard = hear(items, cut, Hearing(batch_size=2), skip=skipped.__setitem__)
    assert [places for _, places in heard] == [[0, 1], [3], [4, 5]]
    assert {place: str(why) for place, why in skipped.items()} == {2: "gone"}


def test_many_windows_of_an_item_fill_batches_of_the_size_asked_for() -> None:
    tiles = [np.zeros((5, 4), np.float32), np.ones((2, 4), np.float32)]
    sizes = [(len(found), places) for found, places in hear(tiles, cut, Hearing(batch_size=3))]
    assert sizes == [(3, [0, 0, 0]), (3, [0, 0, 1]), (1, [1])]


def test_without_a_listener_for_skips_the_error_is_raised() -> None:
    with pytest.raises(AudioError, match="gone"):
        list(hear([AudioError("gone")], cut))
    with pytest.raises(KeyError):  # a fault of the program is never a reason to skip
        list(hear([KeyError("x")], cut, skip=lambda place, error: None))
    with pytest.raises(AudioError, match="NaN"):
        list(hear([np.full((1, 4), np.nan, np.float32)], cut))
    with pytest.raises(InputError, match="batch size"):
        Hearing(batch_size=0)


class Lengths:
    """Embeds a window as its first two samples."""

    device = torch.device("cpu")
    joint_dim = 2

    def embed_windows(self, found: torch.Tensor) -> torch.Tensor:
        return found[:, :2]


def test_an_item_is_the_mean_of_its_windows_and_each_window_can_stand_alone() -> None:
    items = [np.eye(2, 3, dtype=np.float32), AudioError("gone"), np.ones((1, 3), np.float32)]
    found = embed_items(Lengths(), items, cut)
    assert found.places == (0, 2)
    np.testing.assert_allclose(found.vectors, np.full((2, 2), 0.5**0.5), atol=1e-6)
    assert list(found.skipped) == [1]
    each = embed_items(Lengths(), items, cut, each_window=True)
    assert each.places == (0, 0, 2)
    np.testing.assert_allclose(each.vectors[:2], np.eye(2), atol=1e-6)
    with pytest.raises(AudioError, match="gone"):
        embed_items(Lengths(), items, cut, strict=True)
    assert embed_items(Lengths(), [], cut).vectors.shape == (0, 2)
