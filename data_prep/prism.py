"""PRISM: where to get it, and how it becomes a table of comparisons.

What     1,500 people in 38 countries rate responses of 21 language models in live conversations (Kirk et al. 2024).
Where    Hugging Face dataset HannahRoseKirk/prism-alignment, DOI 10.57967/hf/2113.
Licence  human-written text CC BY 4.0; model responses CC BY-NC 4.0, and the terms of each model's provider.
Get it   hf download HannahRoseKirk/prism-alignment --repo-type dataset --local-dir RAW
Needs    RAW/survey.jsonl and RAW/utterances.jsonl (or RAW/conversations.jsonl)

    python data_prep/prism.py RAW DATA                  # the paper's split: 85/15 over the survey, no validation set
    python data_prep/prism.py RAW DATA --history        # further options are those of 'scpo prepare prism'
    python data_prep/prism.py hub DATA                  # straight from the Hub
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from scpo.cli.prepare import main
from scpo.data.manifest import read_manifest
from scpo.errors import UserError

PUBLISHED = {"annotators of the survey": 1500, "conversations": 8011}


def published_sizes(data: Path) -> list[str]:
    """One line per published number that the prepared corpus does not have; none for the full release."""
    extra = read_manifest(data)["extra"]
    talks = extra["conversations"]["by_group"].values()
    found = {
        "annotators of the survey": len(extra["survey_users"]),
        "conversations": sum(group["kept"] + sum(group["dropped"].values()) for group in talks),
    }
    return [f"{what}: {found[what]}, the full release has {n}" for what, n in PUBLISHED.items() if found[what] != n]


def run(arguments: list[str]) -> int:
    """Prepare with the paper's split unless an option says otherwise, then compare with the published sizes."""
    if len(arguments) < 2:
        sys.stderr.write(__doc__ or "")
        return 2
    raw, data, *options = arguments
    source = ["--hub"] if raw == "hub" else ["--raw", raw]
    split = [] if "--split" in options else ["--split", "paper"]
    try:
        code = main(["prism", *source, "--out", data, *split, *options])
        for line in published_sizes(Path(data)):
            sys.stderr.write(f"not the full release: {line}\n")
    except UserError as error:
        if os.environ.get("SCPO_DEBUG") == "1":
            raise
        sys.stderr.write(f"error: {error}\n")
        return 2
    return code


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
