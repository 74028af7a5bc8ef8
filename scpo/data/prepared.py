"""What every reader of raw data hands on: a frame of candidates without a split, and the account of what it dropped."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from scpo.data.ledger import Ledger


@dataclass
class Prepared:
    """The result of reading one source.

    Attributes:
        frame: the columns of :data:`scpo.data.schema.COMPARISONS` but for `split`, rows of a comparison together.
        ledger: kept and dropped comparisons per group and reason.
        source: where the rows come from, such as ``{"files": {name: sha256}}`` or ``{"hub": id, "revision": commit}``.
        options: the options of the reader that shaped the result.
        extra: further facts for the manifest; `survey_users` (all users in file order) is what the paper's split needs.
    """

    frame: pd.DataFrame
    ledger: Ledger
    source: dict[str, Any]
    options: dict[str, Any]
    extra: dict[str, Any] = field(default_factory=dict)
