"""What a model was trained on, kept beside its weights, so that no evaluation counts it.

Ids alone do not tell two corpora apart (``user0`` is in every one of PRISM's layout), nor do texts alone (short answers
recur). A cluster counts as trained on when a training response of it stands under the same id again.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from scpo.errors import UserError
from scpo.io import read_json, sha256_json, write_json

if TYPE_CHECKING:
    import pandas as pd

TRAINED_ON = Path("steering") / "trained_on.json"
UNITS = ("cluster_id", "comparison_id")


def write_trained_on(model: Path, unit: str, rows: pd.DataFrame) -> None:
    """Write ``model/steering/trained_on.json``: hashes only, one per training comparison.

    Args:
        model: the model's folder.
        unit: the column that was split: cluster_id, or comparison_id where single comparisons were.
        rows: the training rows of a comparisons table.
    """
    spoken = rows[rows["response"].str.strip() != ""].drop_duplicates("comparison_id")
    write_json(model / TRAINED_ON, {"schema": 1, "unit": unit, "keys": sorted(set(_keys(spoken, unit)))})


def trained_rows(model: Path, frame: pd.DataFrame) -> npt.NDArray[np.bool_] | None:
    """(n_rows,) True for the rows of every cluster that the model was trained on; None where the model does not tell.

    Raises:
        UserError: the file is not the one that :func:`write_trained_on` writes.
    """
    path = Path(model) / TRAINED_ON
    if not path.is_file():
        return None
    found = read_json(path)
    if not isinstance(found, dict) or found.get("unit") not in UNITS or not isinstance(found.get("keys"), list):
        raise UserError(f"{path}: expected the list of what the model was trained on, found another document")
    seen, unit = set(found["keys"]), found["unit"]
    met = np.array([key in seen for key in _keys(frame, unit)], dtype=bool)
    return frame[unit].isin(frame.loc[met, unit]).to_numpy()


def _keys(rows: pd.DataFrame, unit: str) -> list[str]:
    parts = zip(rows["dataset"], rows[unit], rows["response"], strict=True)
    return [sha256_json(list(part))[:16] for part in parts]
