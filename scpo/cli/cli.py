"""``scpo cli fit|validate|test``: Lightning's command line over the library's own classes."""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
from pathlib import Path

import scpo
from scpo.errors import UserError

NEEDS = ("jsonargparse", "docstring_parser", "typeshed_client")

HELP = """\
usage: scpo cli fit|validate|test --config FILE [--model.KEY VALUE] [--data.KEY VALUE] [--trainer.KEY VALUE]

Train or measure one reward model with Lightning's command line: the classes and settings of 'scpo train' behind another door.

  fit       train; leaves checkpoints, the parsed config, the logged numbers and a model folder in runs/cli/version_N
  validate  accuracy by group on the validation split, of the starting model or of --ckpt_path FILE
  test      the same on the test split

'scpo cli fit --help' lists the settings; 'scpo cli fit --print_config' writes them as a config file.
A config for each conditioning mode lies in {folder}

example:
  scpo cli fit --config {folder}/fit_embedding.yaml --data.dir data/prism --model.name_or_path runs/global/model
"""


def examples_dir() -> Path:
    """The example configs: inside the installed package, or beside it in a checkout."""
    package = Path(scpo.__file__).parent
    installed = package / "examples" / "cli"
    return installed if installed.is_dir() else package.parent / "examples" / "cli"


def main(argv: list[str]) -> int:
    """Run one of Lightning's subcommands.

    Raises:
        UserError: anything wrong with the command line, the config, the data or the models; no jsonargparse.
    """
    if not argv or argv[0] in ("-h", "--help"):
        sys.stdout.write(HELP.format(folder=examples_dir()))
        return 0
    missing = [name for name in NEEDS if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"scpo cli needs {', '.join(missing)}: pip install 'scpo[cli]'")

    if argv[0] not in ("fit", "validate", "test") and not argv[0].startswith("-"):
        raise UserError(f"scpo cli: expected fit, validate or test, found {argv[0]!r}")

    if os.environ.get("LOCAL_RANK", "0") != "0":
        # Lightning starts the other processes with the same command line; what is to be said is said by the first.
        logging.getLogger("scpo").setLevel(logging.WARNING)

    from lightning.fabric.utilities.exceptions import MisconfigurationException

    from scpo.cli.lightning import SteerableCLI

    try:
        SteerableCLI(argv)
    except MisconfigurationException as error:
        raise UserError(f"scpo cli {argv[0]}: {error}") from error
    except KeyboardInterrupt:
        sys.stderr.write(
            "scpo: interrupted; --ckpt_path goes on from a checkpoint in the log folder, where there is one\n"
        )
        return 130
    return 0
