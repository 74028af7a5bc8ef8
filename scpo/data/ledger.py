"""What was kept and what was dropped, per group and reason: nothing disappears without a line here."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Literal

from scpo.errors import UserError

Kind = Literal["fault", "choice", "note"]

NO_GROUP = "(no group)"
"""The ledger's row for what belongs to no group, such as comparisons of annotators without a country."""


class Ledger:
    """Counts per group and reason.

    A `fault` is a defect of the data, a `choice` follows from an option (non-answers, samples), and a `note` loses no
    comparison but the reader should know (an empty response kept, shares renormalised). Faults and choices count comparisons.
    """

    def __init__(self) -> None:
        self.kinds: dict[str, Kind] = {}
        self.dropped: dict[str, Counter[str]] = defaultdict(Counter)
        self.kept: Counter[str] = Counter()

    def drop(self, group: str | None, reason: str, kind: Kind = "fault", n: int = 1) -> None:
        """Count ``n`` comparisons (or, for a note, events) of a group under a reason."""
        known = self.kinds.setdefault(reason, kind)
        if known != kind:
            raise ValueError(f"reason {reason!r} is a {known}, not a {kind}")
        if n:
            self.dropped[group or NO_GROUP][reason] += n

    def note(self, group: str | None, reason: str, n: int = 1) -> None:
        """Count something that loses no comparison."""
        self.drop(group, reason, "note", n)

    def keep(self, group: str, n: int = 1) -> None:
        """Count ``n`` kept comparisons of a group."""
        self.kept[group] += n

    def fault_share(self, group: str) -> float:
        """Share of a group's comparisons lost to faults: lost / (lost + kept)."""
        lost = sum(n for reason, n in self._dropped(group).items() if self.kinds[reason] == "fault")
        total = lost + self.kept[group]
        return lost / total if total else 0.0

    def check(self, max_fault_share: float, where: str) -> None:
        """Raise UserError when a group lost more than ``max_fault_share`` of its comparisons to faults."""
        bad = [
            g
            for g in sorted(set(self.kept) | set(self.dropped))
            if g != NO_GROUP and self.fault_share(g) > max_fault_share
        ]
        if bad:
            detail = "; ".join(f"{g} {self.fault_share(g):.0%} ({self.reasons_of(g, 'fault')})" for g in bad[:10])
            more = f"; and {len(bad) - 10} more" if len(bad) > 10 else ""
            raise UserError(
                f"{where}: more than {max_fault_share:.0%} of the comparisons were lost to faults of the data in "
                f"{len(bad)} group(s): {detail}{more}; repair the data or raise --max-fault-share"
            )

    def reasons_of(self, group: str, kind: Kind) -> str:
        """``"one candidate 3, empty prompt 1"`` for one group and kind."""
        return ", ".join(f"{r} {n}" for r, n in sorted(self._dropped(group).items()) if self.kinds[r] == kind)

    def as_dict(self) -> dict[str, object]:
        """For the manifest: ``{"kinds": {reason: kind}, "by_group": {group: {"kept": n, "dropped": {reason: n}}}}``."""
        groups = sorted(set(self.kept) | set(self.dropped))
        return {
            "kinds": dict(sorted(self.kinds.items())),
            "by_group": {g: {"kept": self.kept[g], "dropped": dict(sorted(self._dropped(g).items()))} for g in groups},
        }

    def _dropped(self, group: str) -> Counter[str]:
        # Not self.dropped[group]: asking would add the group.
        return self.dropped.get(group, Counter())
