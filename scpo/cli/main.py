"""``scpo COMMAND ...``: finds the command's file and turns its errors into exit codes.

0 is success, 2 a user's mistake (one line on stderr), 1 anything else. The traceback is shown with SCPO_DEBUG=1.
"""

from __future__ import annotations

import importlib
import os
import sys

from scpo.errors import UserError, did_you_mean

COMMANDS = {
    "simulate": "write an embedded world in the raw layouts of PRISM and GlobalOpinionQA",
    "prepare": "raw data (PRISM, GlobalOpinionQA, your own) to a table of comparisons",
    "train": "train reward models for groups; -m sweeps (Hydra)",
    "evaluate": "measure a run again, on other data, or any reward model (Hydra)",
    "adapt": "add a group to a steered model from a few comparisons (Hydra)",
    "cli": "train or measure one model with LightningCLI: fit, validate, test",
    "score": "rewards for JSON lines of prompt and response",
    "export": "a run's model as a plain Hugging Face folder with a model card",
    "table": "collect the runs of a folder into one table",
}

HELP = f"""usage: scpo COMMAND ...

Steerable, multi-group reward models: train them, and see whom they serve.

commands:
{chr(10).join(f"  {name:10} {text}" for name, text in COMMANDS.items())}

'scpo COMMAND --help' explains a command. 'scpo --version' prints the version.

example:
  scpo simulate --out raw
  scpo prepare prism --raw raw/prism --out data/simulated
  scpo train experiment=global run_dir=runs/global
  scpo train model.name_or_path=runs/global/model
"""


def main(argv: list[str]) -> int:
    """Run one command and return its exit code."""
    if not argv or argv[0] in ("-h", "--help", "help"):
        sys.stdout.write(HELP)
        return 0
    if argv[0] in ("-V", "--version"):
        from scpo import __version__

        sys.stdout.write(f"scpo {__version__}\n")
        return 0
    name = argv[0]
    if name not in COMMANDS:
        raise UserError(f"expected a command, found {name!r}.{did_you_mean(name, COMMANDS)} See 'scpo --help'")
    from scpo.cli.logs import set_up

    set_up()
    module = importlib.import_module(f"scpo.cli.{name}")
    return int(module.main(argv[1:]))


def entry() -> None:
    """The console script."""
    debug = os.environ.get("SCPO_DEBUG") == "1"
    try:
        code = main(sys.argv[1:])
        sys.stdout.flush()
    except UserError as error:
        if debug:
            raise
        sys.stderr.write(f"scpo: {' '.join(str(error).split())}\n")
        code = 2
    except KeyboardInterrupt:
        goes_on = " the same command goes on from its last checkpoint" if sys.argv[1:2] == ["train"] else ""
        sys.stderr.write(f"scpo: interrupted;{goes_on or ' nothing was written'}\n")
        code = 130
    except BrokenPipeError:
        # The reader of our output is gone, as with '| head'; there is nobody left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except Exception as error:
        if debug:
            raise
        text = " ".join(str(error).split())[:500]
        sys.stderr.write(f"scpo: unexpected {type(error).__name__}: {text} (SCPO_DEBUG=1 shows where)\n")
        code = 1
    sys.exit(code)


if __name__ == "__main__":
    entry()
