"""One of several training processes: ``python -m scpo.run.worker RUN`` under torch's launcher (see `launch`)."""

from __future__ import annotations

import sys
from pathlib import Path

from scpo.errors import UserError
from scpo.io import write_json
from scpo.run.launch import ERROR, read_config


def main(run_dir: Path) -> int:
    """Train the parts of a run as one of its processes; the parent has done all that comes before, and does what follows."""
    from scpo.cli.logs import set_up
    from scpo.run.inputs import build_start, load_data, named_start, reference_folder
    from scpo.run.parts import drop_overlong, prepare_inputs, train_parts
    from scpo.run.rewards import score_reference, set_threads

    set_up()
    config = read_config(run_dir)
    try:
        set_threads(config)
        data = load_data(config)
        named = named_start(config)
        start = named or build_start(config, data, run_dir / "work")
        drop_overlong(config, data, start)
        rewards = score_reference(config, data, reference_folder(config, named))
        train_parts(config, prepare_inputs(config, data, start, rewards), run_dir)
    except UserError as error:
        write_json(run_dir / "work" / ERROR, {"error": str(error)})
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
