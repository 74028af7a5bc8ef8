"""The one exception for a user's mistake, and "did you mean".

The command line turns :class:`UserError` into one line on stderr and exit code 2; library users can catch it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Wrong input or settings. The message says what was expected, what was found, where, and what to do."""


def did_you_mean(name: str, known: Iterable[str], limit: int = 3) -> str:
    """``" Did you mean 'Chile'?"``, or the known names where nothing is close, or ``""`` where there are none."""
    known = sorted(set(known))
    folded = {k.casefold(): k for k in known}
    close = difflib.get_close_matches(str(name).casefold(), folded, n=limit, cutoff=0.6)
    if close:
        return " Did you mean " + " or ".join(repr(folded[c]) for c in close) + "?"
    if not known:
        return ""
    shown = ", ".join(known[:20]) + (f", ... ({len(known)} in all)" if len(known) > 20 else "")
    return f" Known: {shown}."
