"""Seconds and peak memory of the commands that users wait for, each in a process of its own.

    python experiments/benchmarks/measure.py

Prints one line per command: the median seconds over the runs and the largest resident memory. Run it on an idle machine; the
numbers are for reading, no test depends on them.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SCPO = [sys.executable, "-m", "scpo.cli.main"]


def run(command: list[str], folder: Path) -> tuple[float, float]:
    """Seconds and peak resident memory in MB of one command, which must end well."""
    started = time.perf_counter()
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{' '.join(command)} ended with status {status}:\n{said}")
    return time.perf_counter() - started, usage.ru_maxrss / 1024


def main() -> None:
    """Measure start, simulation and preparation of a corpus of PRISM's size."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        jobs = [
            ("import scpo", [sys.executable, "-c", "import scpo"], 5),
            ("scpo --help", [*SCPO, "--help"], 5),
            ("scpo train --help", [*SCPO, "train", "--help"], 3),
            ("scpo simulate, 1,500 annotators", [*SCPO, "simulate", "--out", "raw", "--annotators", "1500"], 1),
            ("scpo prepare prism, PRISM's size", [*SCPO, "prepare", "prism", "--raw", "raw/prism", "--out", "data"], 3),
            (
                "the same with --history",
                [*SCPO, "prepare", "prism", "--raw", "raw/prism", "--out", "past", "--history"],
                3,
            ),
            ("scpo prepare goqa, 200 questions", [*SCPO, "prepare", "goqa", "--raw", "raw/goqa", "--out", "goqa"], 3),
        ]
        for what, command, times in jobs:
            results = [run(command, folder) for _ in range(times)]
            seconds, memory = statistics.median(s for s, _ in results), max(m for _, m in results)
            sys.stdout.write(f"{what:36} {seconds:6.2f} s  {memory:7.0f} MB  (median and maximum of {times})\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
