"""Arguments of the commands that are not Hydra's: a mistake is one line, like every other."""

from __future__ import annotations

import argparse
from typing import NoReturn

from scpo.errors import UserError


class Parser(argparse.ArgumentParser):
    """An argument parser that raises UserError where argparse would print its usage over many lines."""

    def error(self, message: str) -> NoReturn:
        """Raise the message."""
        raise UserError(f"{self.prog}: {message}; '{self.prog} --help' explains")
