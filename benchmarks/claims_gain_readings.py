"""How claims about reweighting are read from the comparison of methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Study = Mapping[str, Any]
SMALL = 0.03
"""Below three points a change of accuracy is called none."""


def _method(s: Study, key: str) -> Mapping[str, Any]:
    return next(row for row in s["methods"] if row["key"] == key)


def _gain(row: Mapping[str, Any]) -> str:
    gain, low, high = (100 * row[name] for name in ("gain", "gain_low", "gain_high"))
    return f"{row['top1']:.1%} ({gain:+.1f} [{low:.1f}, {high:.1f}])"


def gain_of(key: str) -> Callable[[Study], str]:
    def show(s: Study) -> str:
        base = _method(s, "zero-shot")["top1"]
        row = _method(s, key)
        return f"{base:.1%} → {_gain(row)} points, {row['gain'] / base:+.0%} relative"

    return show


def gain_clear(key: str) -> Callable[[Study], bool | None]:
    def holds(s: Study) -> bool | None:
        row, base = _method(s, key), _method(s, "zero-shot")["top1"]
        if not row["gain_low"] > 0:
            return None if row["gain_high"] > 0 else False
        return row["gain"] / base >= 0.08

    return holds


def residual_and_probe(s: Study) -> str:
    probe = _method(s, "linear-probe-joint")
    return f"ResiDual {_gain(_method(s, 'heads-0123'))}, probe {_gain(probe)}"


def residual_below_probe(s: Study) -> bool | None:
    row, probe = _method(s, "heads-0123"), _method(s, "linear-probe-joint")
    return row["gain_low"] <= 0 and probe["gain_low"] > 0


def stage_sets(s: Study) -> str:
    return ", ".join(f"{row['key'][6:]}: {_gain(row)}" for row in _sets(s))


def _sets(s: Study) -> list[Mapping[str, Any]]:
    return [row for row in s["methods"] if row["key"].startswith("heads-")]


def _above(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Intervals of the paired gains are apart."""
    return a["gain_low"] > b["gain_high"]


def is_best(key: str) -> Callable[[Study], bool | None]:
    def holds(s: Study) -> bool | None:
        one = _method(s, key)
        others = [row for row in _sets(s) if row["key"] != key]
        if any(_above(row, one) for row in others):
            return False
        return True if all(_above(one, row) for row in others) else None

    return holds


def all_worst(s: Study) -> bool | None:
    one = _method(s, "heads-0123")
    others = [row for row in _sets(s) if row["key"] != "heads-0123"]
    if any(_above(one, row) for row in others):
        return False
    return True if all(_above(row, one) for row in others) else None


def middle_best(s: Study) -> bool | None:
    middle = [_method(s, key) for key in ("heads-1", "heads-2")]
    ends = [_method(s, key) for key in ("heads-0", "heads-3")]
    if any(all(_above(end, one) for one in middle) for end in ends):
        return False
    return True if any(all(_above(one, end) for end in ends) for one in middle) else None


def two_methods(a: str, b: str) -> Callable[[Study], str]:
    return lambda s: f"{a} {_gain(_method(s, a))}, {b} {_gain(_method(s, b))}"


def better(a: str, b: str) -> Callable[[Study], bool | None]:
    def holds(s: Study) -> bool | None:
        one, other = _method(s, a), _method(s, b)
        return True if _above(one, other) else False if _above(other, one) else None

    return holds


def _rule(s: Study, key: str) -> Mapping[str, Any]:
    """By the beginning of its key: a rule's settings stand at its end."""
    return next(row for row in s["methods"] if row["key"].startswith(key))


def rule_cost(key: str) -> Callable[[Study], str]:
    return lambda s: _gain(_rule(s, key))


def rule_free(key: str) -> Callable[[Study], bool | None]:
    def holds(s: Study) -> bool | None:
        row = _rule(s, key)
        return False if row["gain_high"] < 0 else True if row["gain_low"] >= -SMALL else None

    return holds


def rule_gains(key: str) -> Callable[[Study], bool | None]:
    def holds(s: Study) -> bool | None:
        row = _rule(s, key)
        return True if row["gain_low"] > 0 else False if row["gain_high"] < SMALL else None

    return holds


def rules_help(s: Study) -> bool | None:
    rows = [row for row in s["methods"] if row["key"].startswith("rule-")]
    if any(row["gain_low"] > 0 and row["q"] <= 0.05 for row in rows):
        return True
    return False if all(row["gain_high"] < SMALL for row in rows) else None


def _recall(s: Study, direction: str) -> Mapping[str, Any]:
    name = f"gain {direction}_r1: ResiDual heads, unbounded"
    return next(score for score in s["scores"] if score["name"] == name)


def retrieval(s: Study) -> str:
    found = {way: _recall(s, way) for way in ("t2a", "a2t")}
    return ", ".join(
        f"{way} R@1 {100 * of['value']:+.1f} [{100 * of['low']:.1f}, {100 * of['high']:.1f}] points"
        for way, of in found.items()
    )


def retrieval_gains(s: Study) -> bool | None:
    found = [_recall(s, way) for way in ("t2a", "a2t")]
    if any(of["high"] < 0 for of in found):
        return False
    return True if any(of["low"] > 0 for of in found) else None


def rules(s: Study) -> str:
    rows = [row for row in s["methods"] if row["key"].startswith("rule-")]
    return ", ".join(f"{row['key'][5:]} {100 * row['gain']:+.1f}" for row in rows) + " points"
