"""The ledger: counts per group and reason, and the bound on faults."""

from __future__ import annotations

import pytest

from scpo.data.ledger import NO_GROUP, Ledger
from scpo.errors import UserError


def filled() -> Ledger:
    ledger = Ledger()
    ledger.keep("Chile", 8)
    ledger.drop("Chile", "one candidate")
    ledger.drop("Chile", "empty prompt", n=1)
    ledger.drop("Chile", "tie", kind="choice", n=30)
    ledger.note("Chile", "empty response kept", 5)
    ledger.keep("Israel")
    ledger.drop(None, "no country", n=45)
    return ledger


def test_everything_is_counted_per_group_and_reason() -> None:
    assert filled().as_dict() == {
        "kinds": {
            "empty prompt": "fault",
            "empty response kept": "note",
            "no country": "fault",
            "one candidate": "fault",
            "tie": "choice",
        },
        "by_group": {
            NO_GROUP: {"kept": 0, "dropped": {"no country": 45}},
            "Chile": {
                "kept": 8,
                "dropped": {"empty prompt": 1, "empty response kept": 5, "one candidate": 1, "tie": 30},
            },
            "Israel": {"kept": 1, "dropped": {}},
        },
    }
    assert filled().reasons_of("Chile", "fault") == "empty prompt 1, one candidate 1"
    assert filled().reasons_of("Chile", "choice") == "tie 30"


def test_only_faults_count_towards_the_bound() -> None:
    """2 faults and 8 kept are 20%: at the bound it passes, above it stops. Ties and notes do not count."""
    ledger = filled()
    assert ledger.fault_share("Chile") == pytest.approx(0.2)
    assert ledger.fault_share("Israel") == 0.0
    ledger.check(0.2, "survey.jsonl")
    ledger.drop("Chile", "one candidate")
    with pytest.raises(UserError, match=r"survey\.jsonl: more than 20% .*1 group\(s\): Chile 27% .*one candidate 2"):
        ledger.check(0.2, "survey.jsonl")
    ledger.check(0.3, "survey.jsonl")


def test_what_belongs_to_no_group_never_stops() -> None:
    ledger = Ledger()
    ledger.drop(None, "no country", n=100)
    ledger.drop("", "no country", n=1)
    ledger.check(0.0, "x")
    assert ledger.as_dict()["by_group"] == {NO_GROUP: {"kept": 0, "dropped": {"no country": 101}}}


def test_a_group_that_lost_everything_stops_and_a_long_list_is_cut() -> None:
    ledger = Ledger()
    for i in range(12):
        ledger.drop(f"group{i:02d}", "one candidate")
    with pytest.raises(
        UserError, match=r"12 group\(s\): group00 100% .*group09 .*; and 2 more; .*--max-fault-share"
    ) as error:
        ledger.check(0.99, "x")
    assert "group10" not in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_a_reason_has_one_kind() -> None:
    ledger = filled()
    with pytest.raises(ValueError, match="'tie' is a choice, not a fault"):
        ledger.drop("Israel", "tie")


def test_asking_about_a_group_adds_no_row() -> None:
    ledger = filled()
    before = ledger.as_dict()
    ledger.check(0.5, "x")
    assert ledger.fault_share("Peru") == 0.0
    assert ledger.reasons_of("Peru", "fault") == ""
    ledger.drop("Peru", "one candidate", n=0)
    ledger.as_dict()
    assert ledger.as_dict() == before
