"""Steering by several groups: weights, names and scales, by hand and as properties."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scpo.errors import UserError
from scpo.mixture import Mix, Steerer, combine, normalised

SCALE = {"Chile": [1.0, 2.0], "Canada": [-3.0, 0.5], "Mexico": [0.0, 0.0]}


def steerer(mode: str = "embedding", *, default: bool = True, scale: dict[str, Any] | None = SCALE) -> Steerer:
    groups = dict.fromkeys(("Chile", "Canada", "Mexico", "Israel"), ".")
    return Steerer(Path("M"), {"mode": mode, "groups": groups, "default": default, "scale": scale})


def refusal(group: Any, aggregate: str | None = None, **model: Any) -> str:
    with pytest.raises(UserError) as error:
        steerer(**model).steer(group, aggregate)
    line = str(error.value)
    assert "\n" not in line
    return line


def test_one_group_is_raw_by_name_alias_weights_or_list() -> None:
    one = Mix(("Chile",), (1.0,), False)
    for group, aggregate in (
        ("Chile", None),
        ("CL", None),
        ({"chile": 3}, None),
        (["CHL"], "min"),
        (("Chile",), "mean"),
    ):
        assert steerer().steer(group, aggregate) == one
    assert steerer().steer(one) is one
    assert steerer().steer(None) == Mix((None,), (1.0,), False)


def test_several_groups_are_standardised() -> None:
    assert steerer().steer({"CL": 7, "Canada": 3}) == Mix(("Chile", "Canada"), (0.7, 0.3), True)
    assert steerer().steer(["CL", "Canada"], "mean") == Mix(("Chile", "Canada"), (0.5, 0.5), True)
    assert steerer().steer(["CL", "Canada"], "min") == Mix(("Chile", "Canada"), None, True)
    # A sweep of weights stays on one scale to its end; what has no weight needs no scale.
    assert steerer().steer({"Chile": 1, "Mexico": 0}) == Mix(("Chile",), (1.0,), True)
    assert steerer().steer({"Chile": np.float32(0.5), "Canada": np.int64(1)}).weights == pytest.approx((1 / 3, 2 / 3))


def test_combined_by_hand() -> None:
    mixes = [
        Mix(("Chile", "Canada"), (0.7, 0.3), True),
        Mix(("Canada",)),
        Mix(("Chile", "Canada"), None, True),
        Mix(("Chile",), (1.0,), True),
    ]
    rewards = np.array([2.0, -2.0, 5.25, 4.0, -2.75, 4.0], dtype=np.float32)
    scale: Any = {"Chile": (1.0, 2.0), "Canada": (-3.0, 0.5)}
    # (2 - 1) / 2 = 0.5 and (-2 + 3) / 0.5 = 2; (4 - 1) / 2 = 1.5 and (-2.75 + 3) / 0.5 = 0.5
    found = combine(rewards, mixes, scale)
    assert found.dtype == np.float32
    assert found.tolist() == pytest.approx([0.7 * 0.5 + 0.3 * 2, 5.25, 0.5, 1.5])
    assert combine(rewards[:0], [], {}).shape == (0,)


def test_a_text_without_a_reward_has_none_in_any_mixture() -> None:
    mixes = [Mix(("Chile", "Canada"), weights, True) for weights in ((0.5, 0.5), None)]
    scale: Any = {"Chile": (0.0, 1.0), "Canada": (0.0, 1.0)}
    assert np.isnan(combine(np.array([math.nan, 1, 1, math.nan]), mixes, scale)).all()


REFUSED: list[tuple[Any, str | None, str]] = [
    ({"Chile": -0.1, "Canada": 1.1}, None, "weight of 'Chile': expected a number from 0 up, found -0.1"),
    ({"Chile": math.nan, "Canada": 1}, None, "weight of 'Chile': expected a number from 0 up, found nan"),
    ({"Chile": math.inf}, None, "weight of 'Chile': expected a number from 0 up, found inf"),
    ({"Chile": "1"}, None, "weight of 'Chile': expected a number from 0 up, found '1'"),
    ({"Chile": True}, None, "weight of 'Chile': expected a number from 0 up, found True"),
    ({"Chile": 0, "Canada": 0.0}, None, "expected at least one weight above 0"),
    ({}, None, "expected at least one weight above 0"),
    ({"Chile": 1, "CL": 1}, None, "'Chile' and 'CL' are both Chile"),
    ({3: 1}, None, "expected names of groups, found 3"),
    ([], "mean", "expected one or more groups, each once, found []"),
    (["Chile", "Chile"], "min", "expected one or more groups, each once"),
    (["Chile", "CL"], "min", "'Chile' and 'CL' are both Chile"),
    ([None, "Chile"], "min", "expected names of groups, found None"),
    (["Chile", "Canada"], None, "expected aggregate=mean or aggregate=min with the list"),
    ({"Chile": 1, "Canada": 1}, "min", "has no use for weights; give the list ['Chile', 'Canada']"),
    ("Chile", "max", "aggregate: expected mean or min, found 'max'"),
    ("Chile", "min", "aggregate=min: expected a list of groups, found 'Chile'"),
    (None, "mean", "aggregate=mean: expected a list of groups, found None"),
    (5, None, "group: expected a name, None, weights of groups or a list of them, found 5"),
    ({"Chile": 1, "Mexico": 1}, None, "scale of 'Mexico': expected the mean and deviation of its rewards"),
    ({"Chile": 1, "Israel": 1}, None, "found none; train the run again, or pass a single group"),
]


@pytest.mark.parametrize(("group", "aggregate", "text"), REFUSED)
def test_what_is_no_mixture_is_refused(group: Any, aggregate: str | None, text: str) -> None:
    assert text in refusal(group, aggregate)


def test_a_deviation_of_zero_is_told_with_what_to_do() -> None:
    line = refusal({"Chile": 1, "Mexico": 1})
    assert "found [0.0, 0.0]" in line
    assert "train the run again, or pass a single group" in line
    assert "steering.json" in line
    assert "found none" in refusal(["Chile", "Canada"], "min", scale=None)


def test_an_unknown_group_is_offered_what_the_model_can_do() -> None:
    mixture = 'a mixture of known ones: {"Chile": 0.7, "Canada": 0.3}'
    for group, aggregate in (("Kenya", None), ({"Chile": 1, "Kenya": 1}, None), (["Kenya"], "min")):
        line = refusal(group, aggregate)
        assert "found 'Kenya'" in line
        assert "no group (None) or 'scpo adapt model=M group=NAME'" in line
        assert mixture in line
    assert "no group (None, which was not trained for)" in refusal("Kenya", default=False)
    prefix, separate = refusal("Kenya", mode="prefix"), refusal("Kenya", mode="separate", default=False)
    # scpo adapt trains what a group has of its own, and these modes have nothing.
    assert "scpo adapt" not in prefix + separate
    assert "None" not in separate
    assert mixture in prefix
    assert mixture in separate
    assert "Did you mean 'Chile'?" in refusal("Chila")


def test_no_group_is_refused_where_every_group_has_a_model_of_its_own() -> None:
    line = refusal(None, mode="separate", default=False)
    assert "one model per group and no default: name one of Chile, Canada, Mexico, Israel, or a mixture" in line


def test_models_without_groups_take_none() -> None:
    plain = Steerer(Path("M"), None)
    assert (plain.mode, plain.groups, plain.has_default) == ("none", (), True)
    assert plain.steer(None) == Mix((None,))
    with pytest.raises(UserError, match="plain reward model that takes no group"):
        plain.steer("Chile")
    assert "conditioning=none" in refusal({"Chile": 1}, mode="none")


@given(st.dictionaries(st.text(max_size=3), st.floats(0, allow_nan=False, allow_infinity=False), min_size=1))
def test_weights_sum_to_one_and_keep_their_ratios(weights: dict[str, float]) -> None:
    if not any(weights.values()):
        with pytest.raises(UserError, match="above 0"):
            normalised(weights)
        return
    found = normalised(weights)
    assert math.fsum(found.values()) == pytest.approx(1)
    largest = max(weights, key=lambda name: weights[name])
    for name, weight in weights.items():
        assert found[name] == pytest.approx(found[largest] * (weight / weights[largest]))


@given(
    st.lists(st.tuples(st.floats(-10, 10), st.floats(-10, 10)), min_size=1, max_size=6),
    st.floats(0, 1),
    st.floats(-100, 100),
    st.floats(0.01, 100),
)
def test_neither_level_nor_spread_of_a_group_moves_a_mixture(
    rewards: list[tuple[float, float]], weight: float, level: float, spread: float
) -> None:
    mixes = [Mix(("a", "b"), (weight, 1 - weight), True), Mix(("a", "b"), None, True)]
    for first, second in rewards:
        before = combine(np.array([first, second] * 2), mixes, {"a": (1.0, 2.0), "b": (0.0, 1.0)})
        moved = np.array([first * spread + level, second] * 2)
        after = combine(moved, mixes, {"a": (spread + level, 2.0 * spread), "b": (0.0, 1.0)})
        assert after == pytest.approx(before, abs=1e-4)
