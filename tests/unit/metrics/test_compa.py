"""CompA: chance on random similarities, every branch by hand, and where a pair fails."""

from __future__ import annotations

import numpy as np
import pytest

from residual_audio.errors import InputError
from residual_audio.metrics import compa


@pytest.mark.parametrize("k", [2, 3])
def test_random_similarities_score_at_chance(k: int) -> None:
    s = np.random.default_rng(0).normal(size=(300_000, k, k))
    for name, passed in compa.outcomes(s).items():
        assert passed.mean() == pytest.approx(compa.chance(name, k), abs=0.003), name


def test_chance_by_hand() -> None:
    assert [compa.chance(n) for n in ("f", "g")] == [0.25, 0.25]
    assert compa.chance("h") == pytest.approx(1 / 6)
    assert compa.chance("h", 3) == pytest.approx(1 / 60)
    assert compa.chance("both_one_sided") == pytest.approx(1 / 3)
    with pytest.raises(InputError, match="'x'"):
        compa.chance("x")


@pytest.mark.parametrize(
    ("s", "f", "g", "t2a", "a2t"),
    [
        # rows are captions, columns are sounds
        ([[0.9, 0.1], [0.1, 0.9]], True, True, True, True),
        ([[0.1, 0.9], [0.9, 0.1]], False, False, False, False),
        ([[0.5, 0.1], [0.4, 0.2]], True, False, True, True),  # second caption prefers sound 0
        ([[0.5, 0.4], [0.1, 0.2]], False, True, True, True),  # second sound prefers caption 0
        ([[0.5, 0.6], [0.4, 0.7]], True, False, False, True),
        ([[0.5, 0.4], [0.6, 0.7]], False, True, True, False),
        ([[0.5, 0.5], [0.5, 0.5]], False, False, False, False),  # ties fail
        ([[0.5, 0.5], [0.1, 0.9]], True, False, False, True),
        ([[0.5, 0.1], [0.5, 0.9]], False, True, True, False),
    ],
)
def test_every_branch(s: list, f: bool, g: bool, t2a: bool, a2t: bool) -> None:
    found = {name: bool(value[0]) for name, value in compa.outcomes(np.array([s])).items()}
    assert found == {
        "f": f,
        "g": g,
        "h": f and g,
        "t2a_one_sided": t2a,
        "a2t_one_sided": a2t,
        "both_one_sided": t2a and a2t,
    }
    margin = compa.margins(np.array([s]))
    assert (margin["f"][0] > 0) == f
    assert (margin["g"][0] > 0) == g
    assert margin["h"][0] == min(margin["f"][0], margin["g"][0])


def _unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def test_interaction_is_separation_times_alignment() -> None:
    rng = np.random.default_rng(1)
    text, audio = _unit(rng.normal(size=(50, 2, 16))), _unit(rng.normal(size=(50, 2, 16)))
    g = compa.pair_geometry(text, audio)
    s = np.einsum("itd,iad->ita", text, audio)
    interaction = s[:, 0, 0] + s[:, 1, 1] - s[:, 0, 1] - s[:, 1, 0]
    np.testing.assert_allclose(
        interaction, g["text_distance"] * g["audio_distance"] * g["alignment"], atol=1e-12
    )
    # where the sides point the same way, F asks of the audio distance, G of the text distance
    passed = compa.outcomes(s)
    aligned = g["alignment"] > 0
    np.testing.assert_array_equal(
        passed["f"][aligned], (g["audio_distance"] > g["audio_needed"])[aligned]
    )
    np.testing.assert_array_equal(
        passed["g"][aligned], (g["text_distance"] > g["text_needed"])[aligned]
    )
    assert not (passed["f"] | passed["g"])[~aligned].any()


def test_failing_side_names_the_collapsed_or_misaligned_side() -> None:
    rng = np.random.default_rng(2)
    base = _unit(rng.normal(size=(40, 1, 32)))
    axis = _unit(rng.normal(size=(40, 32)))
    apart = _unit(base + 0.5 * np.stack([axis, -axis], axis=1))
    together = _unit(base + 1e-4 * np.stack([axis, -axis], axis=1))
    assert set(compa.failing_side(apart, apart)) == {None}
    assert set(compa.failing_side(together, apart)) <= {"text", None}
    assert compa.failing_side(apart, together).count("audio") > 0
    assert set(compa.failing_side(apart, together)) <= {"audio", None}
    assert set(compa.failing_side(apart, apart[:, ::-1])) == {"alignment"}
    constant = np.broadcast_to(base, (40, 2, 32))
    assert set(compa.failing_side(constant, apart)) == {"text"}


def test_nonsense_is_refused() -> None:
    with pytest.raises(InputError, match="item, k, k"):
        compa.outcomes(np.zeros((4, 2, 3)))
    with pytest.raises(InputError, match="no pair"):
        compa.outcomes(np.zeros((0, 2, 2)))
    bad = np.zeros((3, 2, 2))
    bad[1, 0, 0] = np.nan
    with pytest.raises(InputError, match="pair 1"):
        compa.outcomes(bad)
