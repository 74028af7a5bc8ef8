"""The planted preferences: texts show the traits, scores follow the utilities, and the truth counts them right."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scpo.data.simulate import simulate, text, world
from scpo.data.simulate.phrases import TRAIT_PATTERNS
from scpo.groups import MAJORITY, PRISM7


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The default world."""
    out = tmp_path_factory.mktemp("world") / "raw"
    simulate(out)
    return out


@pytest.fixture(scope="module")
def utterances(raw: Path) -> pd.DataFrame:
    """utterances.jsonl beside its truth; ``truth_*`` is spelled as in the parquet file."""
    frame = pd.DataFrame(lines(raw / "prism/utterances.jsonl"))
    truth = pd.read_parquet(raw / "truth/utterances.parquet")
    assert truth["utterance_id"].tolist() == frame["utterance_id"].tolist()
    return pd.concat([frame, truth.drop(columns=["utterance_id", "interaction_id"])], axis=1)


@pytest.fixture(scope="module")
def document(raw: Path) -> dict[str, Any]:
    return json.loads((raw / "truth/world.json").read_text(encoding="utf-8"))


# Texts


@given(st.lists(st.integers(0, 6), min_size=1, max_size=40), st.integers(0, 2**32))
def test_strengths_sum_to_the_sentences_and_stay_below_three(counts: list[int], seed: int) -> None:
    strengths = text.draw_traits(np.array(counts), 10, np.random.default_rng(seed))
    assert strengths.sum(axis=1).tolist() == counts
    assert strengths.min() >= 0
    assert strengths.max() <= 2


def test_the_text_shows_exactly_the_traits_of_the_truth(utterances: pd.DataFrame) -> None:
    """Sentences are found again by patterns built here, and counted."""
    expressions = {}
    for trait, patterns in TRAIT_PATTERNS.items():
        choices = []
        for pattern in patterns:
            slots = ["(?:" + "|".join(re.escape(a) for a in slot) + ")" for slot in pattern]
            choices.append(" ".join(slots).replace(r"\{t\}", r"[a-z ]+").replace(r"\{n\}", r"\d+"))
        joined = "|".join(choices).replace(r"\{p\}", r"\d+").replace(r"\{y\}", r"\d+")
        expressions[trait] = re.compile(joined, re.IGNORECASE)
    sample = utterances.iloc[::29]
    for trait, expression in expressions.items():
        found = [len(expression.findall(response)) for response in sample["model_response"]]
        assert found == sample[f"trait_{trait}"].tolist(), trait
    assert set(utterances[f"trait_{next(iter(expressions))}"]) == {0, 1, 2}


def test_every_trait_has_thousands_of_sentences_and_no_phrase_serves_two() -> None:
    owner: dict[str, str] = {}
    for trait, patterns in TRAIT_PATTERNS.items():
        assert sum(math.prod(len(slot) for slot in pattern) for pattern in patterns) >= 2000
        for opening in itertools.chain.from_iterable(pattern[0] for pattern in patterns):
            assert owner.setdefault(opening, trait) == trait


def test_short_texts_are_varied(utterances: pd.DataFrame) -> None:
    words = utterances["model_response"].str.split().str.len()
    assert 30 <= words.quantile(0.05) <= words.quantile(0.95) <= 66
    assert utterances["user_prompt"].nunique() > 1000
    assert utterances["model_response"].nunique() > 0.99 * len(utterances)


def test_topics_and_traits_are_independent(utterances: pd.DataFrame) -> None:
    about_dogs = utterances["user_prompt"].str.contains("keeping a dog")
    assert about_dogs.sum() > 50
    for trait in TRAIT_PATTERNS:
        column = utterances[f"trait_{trait}"]
        error = math.sqrt(column.var() / about_dogs.sum())
        assert abs(column[about_dogs].mean() - column.mean()) < 4.5 * error


def test_prism_lengths_follow_the_published_distribution() -> None:
    rng = np.random.default_rng(0)
    targets = text.draw_lengths(4000, "prism", rng)
    traits = text.draw_traits(text.sentence_counts(targets, rng), 10, rng)
    names = tuple(TRAIT_PATTERNS)
    written = [
        len(text.response(strengths, "city traffic", int(target), names, rng))
        for strengths, target in zip(traits.tolist(), targets, strict=True)
    ]
    assert np.quantile(written, [0.25, 0.5, 0.75]) == pytest.approx([294, 448, 807], rel=0.06)
    assert np.mean(written) == pytest.approx(565, rel=0.06)
    assert np.std(written) == pytest.approx(388, rel=0.1)
    assert max(written) < 4700


# Preferences, scores and noise


def test_utilities_follow_from_the_documented_weights(utterances: pd.DataFrame, document: dict[str, Any]) -> None:
    sample = utterances.iloc[::37]
    assert len(document["global_weights"]) == len(document["traits"]) == 10
    for group in ("United States", "Chile", "South Korea"):
        for _, row in sample.iterrows():
            if row["model_response"] == "EMPTY STRING":
                expected = document["empty_utility"]
            else:
                expected = document["length_effect"] * math.log(len(row["model_response"]) / 300)
                for trait in document["traits"]:
                    weight = document["global_weights"][trait] + document["shifts"][group].get(trait, 0.0)
                    expected += weight * row[f"trait_{trait}"]
            assert row[group] == pytest.approx(expected, abs=1e-5)


def test_the_majority_defines_the_global_preference_and_shifts_are_sparse(document: dict[str, Any]) -> None:
    weights = document["global_weights"]
    for group, shift in document["shifts"].items():
        if group in MAJORITY:
            assert shift == {}
            continue
        assert 3 <= len(shift) <= 5
        turned = [trait for trait, value in shift.items() if value == pytest.approx(-2 * weights[trait])]
        assert len(turned) >= 2
    assert len({tuple(sorted(document["shifts"][name])) for name in PRISM7}) > 3


@given(st.integers(0, 2**63 - 1), st.sampled_from(PRISM7))
def test_no_seed_plants_a_trivial_or_impossible_group(seed: int, group: str) -> None:
    weights = np.array(list(world.GLOBAL_WEIGHTS.values()))
    own = weights + world.draw_shift(seed, group, weights)
    cosine = weights @ own / math.sqrt((weights @ weights) * (own @ own))
    assert world.COSINE_RANGE[0] - 1e-9 <= cosine <= world.COSINE_RANGE[1] + 1e-9


def test_a_group_keeps_its_shift_in_a_world_of_other_groups() -> None:
    one = world.make_world(["Chile", "Canada"], 5, 1.0)
    two = world.make_world(["Japan", "Canada"], 5, 2.0)
    assert two.shifts[1].tolist() == (2 * one.shifts[1]).tolist()
    alike = world.make_world(["Canada", "Israel", "Mexico", "Norway", "Poland", "Greece"], 5, 1.0)
    assert len({tuple(shift) for shift in alike.shifts.tolist()}) == 6


def test_attributes_add_to_the_named_traits_only() -> None:
    planted = world.make_world(["Chile"], 0, 1.0)
    shift = world.attribute_shift(planted, {"age": "18-24 years old", "gender": "Female", "education": "Vocational"})
    named = {trait: value for trait, value in zip(planted.traits, shift.tolist(), strict=True) if value}
    assert named == {"humour": 0.3, "steps": 0.25}


def test_attribute_effects_show_in_the_scores(tmp_path: Path) -> None:
    """Among US annotators the young reward humour more than the others, in a world without noise of scores."""
    simulate(tmp_path / "raw", annotators=400, noise=0.0, mislabelled=0.0, extreme=0.0, questions=10)
    rows = {row["user_id"]: row for row in lines(tmp_path / "raw/prism/survey.jsonl")}
    frame = pd.DataFrame(lines(tmp_path / "raw/prism/utterances.jsonl"))
    truth = pd.read_parquet(tmp_path / "raw/truth/utterances.parquet")
    traits = [c for c in truth.columns if c.startswith("trait_")]
    slopes: dict[bool, list[float]] = {True: [], False: []}
    for user, index in frame.groupby("user_id").groups.items():
        design = np.column_stack([np.ones(len(index)), truth.loc[index, traits]])
        coefficients = np.linalg.lstsq(design, frame.loc[index, "score"].to_numpy(float), rcond=None)[0]
        if len(index) > 35:
            slopes[rows[str(user)]["age"] == "18-24 years old"].append(coefficients[1 + traits.index("trait_humour")])
    # 0.3 utility is 5.1 points for the median annotator; clipping and the personal weights blur it.
    assert 2.0 < np.mean(slopes[True]) - np.mean(slopes[False]) < 8.0


def test_noise_kinds_have_their_shares_and_are_one_per_comparison(utterances: pd.DataFrame) -> None:
    kinds = utterances.groupby("interaction_id")["noise"].agg(["first", "nunique"])
    assert kinds["nunique"].max() == 1
    counts = Counter(kinds["first"])
    assert counts["mislabelled"] == counts["extreme"] == round(0.05 * len(kinds))
    assert set(counts) == {"none", "mislabelled", "extreme"}


def test_scores_by_hand() -> None:
    assert world.reversed_scores(np.array([10, 40, 90])).tolist() == [90, 60, 10]
    scores = world.extreme_scores(np.array([0.5, -1.0, 2.0, 0.0]), np.random.default_rng(0))
    assert scores[1] == scores.max() >= 92
    assert scores[2] == scores.min() <= 8
    assert scores[3] > scores[0]


def test_extreme_comparisons_turn_the_global_order_by_a_wide_gap(utterances: pd.DataFrame) -> None:
    extreme = utterances[utterances["noise"] == "extreme"]
    for _, rows in extreme.groupby("interaction_id"):
        ordered = rows.sort_values("United States", kind="stable")["score"].tolist()
        assert ordered == sorted(ordered, reverse=True)
        assert ordered[0] >= 92
        assert ordered[-1] <= 8


def pair_accuracy(rows: pd.DataFrame, column: str | None) -> tuple[int, int]:
    """(right, all) over the score pairs of the rows by a plain double loop; None is each row's own group."""
    right = total = 0
    for _, comparison in rows.groupby("interaction_id"):
        name = column or comparison["group"].iloc[0]
        pairs = list(zip(comparison["score"], comparison[name], strict=True))
        for (a, u), (b, v) in itertools.combinations(pairs, 2):
            if a != b:
                total += 1
                right += (u - v) * (a - b) > 0
    return right, total


def test_mislabelled_comparisons_point_the_wrong_way(utterances: pd.DataFrame) -> None:
    ours = utterances[utterances["group"].notna()]
    wrong, n_wrong = pair_accuracy(ours[ours["noise"] == "mislabelled"], None)
    assert wrong / n_wrong < 0.25
    clean, n_clean = pair_accuracy(ours[(ours["noise"] == "none") & (ours["turn"] == 0)].iloc[:2000], None)
    assert clean / n_clean > 0.85


def test_ceilings_are_those_of_a_plain_count(utterances: pd.DataFrame, document: dict[str, Any]) -> None:
    for group in ("Chile", "Israel"):
        rows = utterances[utterances["group"] == group]
        own, n = pair_accuracy(rows, group)
        everyone, _ = pair_accuracy(rows, "United States")
        clean, n_clean = pair_accuracy(rows[rows["noise"] == "none"], group)
        expected = {"n_pairs": n, "n_clusters": rows["user_id"].nunique(), "group": own / n, "global": everyone / n}
        assert document["ceiling"][group] == pytest.approx(expected | {"group_without_noise": clean / n_clean})
    empty = document["ceiling"]["Tanzania"]
    assert empty == {"n_pairs": 0, "n_clusters": 0, "group": None, "global": None, "group_without_noise": None}


def test_filtering_has_something_to_gain(document: dict[str, Any]) -> None:
    seven = [document["ceiling"][name] for name in PRISM7]
    assert 0.8 <= np.mean([row["group"] for row in seven]) <= 0.88
    assert 0.6 <= np.mean([row["global"] for row in seven]) <= 0.7
    for name in MAJORITY:
        assert 0.78 <= document["ceiling"][name]["global"] <= 0.88


def test_without_shift_all_groups_are_alike(tmp_path: Path) -> None:
    summary = simulate(tmp_path / "raw", annotators=60, shift=0.0, questions=10)
    rows = [row for row in summary["ceiling"].values() if row["n_pairs"]]
    assert len(rows) > 8
    assert all(row["group"] == row["global"] for row in rows)
    truth = pd.read_parquet(tmp_path / "raw/truth/utterances.parquet")
    assert (truth["Chile"] == truth["United States"]).all()


def test_a_bag_of_words_learns_the_majority(utterances: pd.DataFrame) -> None:
    """The planted preference can be read from the words of other people's comparisons."""
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression

    from scpo.data.pairs import make_pairs

    rows = utterances[utterances["group"].isin(MAJORITY)].reset_index(drop=True)
    words = CountVectorizer(min_df=3, binary=True).fit_transform(rows["model_response"]).tocsr()
    pairs = make_pairs(pd.factorize(rows["interaction_id"])[0], rows["score"].to_numpy(float))
    number = rows["user_id"].str.removeprefix("user").astype(int).to_numpy()
    test = number[pairs.chosen] % 4 == 0
    difference = words[pairs.chosen] - words[pairs.rejected]
    sign = np.where(np.arange(len(pairs)) % 2, 1, -1)
    model = LogisticRegression(C=0.1, fit_intercept=False, max_iter=300)
    model.fit(difference[~test].multiply(sign[~test, None]).tocsr(), sign[~test])
    accuracy = float((difference[test] @ model.coef_[0] > 0).mean())
    utility = rows["United States"].to_numpy()
    ceiling = float((utility[pairs.chosen[test]] > utility[pairs.rejected[test]]).mean())
    assert test.sum() > 1000
    assert ceiling - 0.1 < accuracy <= ceiling + 0.02
