#!/usr/bin/env python
"""GlobalOpinionQA into a table of comparisons.

Where to get it: Hugging Face, dataset ``Anthropic/llm_global_opinions`` (one csv, 2,556 questions). With a connection,
``hf download Anthropic/llm_global_opinions --repo-type dataset --local-dir RAW`` gives the folder for ``--raw``, and
``--hub`` does without one.
Licence: CC BY-NC-SA 4.0 (not for commercial use; share alike). Cite Durmus et al. 2023, "Towards Measuring the
Representation of Subjective Global Opinions in Language Models". The answers come from Pew's Global Attitudes Survey
(GAS) and the World Values Survey (WVS).

Checks: the four columns; every cell parses; shares fit the options, are not negative and sum to 1 (0.98 to 1.02 is
rounding). Samples that do not stand for a nation, non-answers and damaged rows are left out and counted per country.

Example:
    python data_prep/goqa.py --raw RAW --out DATA
    python data_prep/goqa.py --raw RAW --out DATA --samples all --template "Opinion of people in {group} on: {question}"
"""

from __future__ import annotations

import sys

from scpo.cli.prepare import main
from scpo.errors import UserError

if __name__ == "__main__":
    try:
        sys.exit(main(["goqa", *sys.argv[1:]]))
    except UserError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)
