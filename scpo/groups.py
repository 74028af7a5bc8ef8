"""Groups: canonical names, aliases and "did you mean". Spellings of the sources are resolved at the border, here.

Canonical names are short ASCII without commas, brackets or apostrophes, so that they can be typed in a Hydra override.
"""

from __future__ import annotations

import functools
import hashlib
import re
import unicodedata
from collections.abc import Iterable

from scpo import countries
from scpo.errors import UserError, did_you_mean

PRISM7 = ("Chile", "South Africa", "New Zealand", "Australia", "Mexico", "Israel", "Canada")
"""The paper's seven countries."""

MAJORITY = ("United States", "United Kingdom")
"""The groups that the global reward model follows."""

GOQA14 = (
    *("Nigeria", "Egypt", "India", "China", "Japan", "Germany", "France"),
    *("Spain", "United States", "Canada", "Brazil", "Argentina", "Australia", "New Zealand"),
)
"""The 14 countries of the published GlobalOpinionQA experiments; India means its current national sample."""

NATIONAL = ("national", "current national")
"""The kinds of sample that stand for a country."""

MAX_NAME = 60
"""Longest canonical name, in characters."""

AVERAGES = ("micro", "macro")
"""Names of the averages over groups: a group of that name could not be told from them in a table or a log."""

_SAMPLE = re.compile(r"^(?P<name>.*?)\s*\(\s*(?P<kind>[^()]*?)\s*\bsample\s*\)\s*$", re.IGNORECASE | re.DOTALL)
# Letters that Unicode does not decompose, and signs whose loss would merge groups such as "<50k" and ">50k".
_SPELLED = (
    {"ß": "ss", "ẞ": "SS", "æ": "ae", "Æ": "Ae", "œ": "oe", "Œ": "Oe", "ø": "o", "Ø": "O", "ł": "l", "Ł": "L"}
    | {"đ": "d", "Đ": "D", "ð": "d", "Ð": "D", "þ": "th", "Þ": "Th", "ı": "i"}
    | dict.fromkeys("‐‑‒–—−/", "-")
    | {"&": " and ", "<": " under ", ">": " over ", "≤": " up to ", "≥": " at least "}
)
# Punctuation that only spells a name: left out without a trace. What a group loses beyond it leaves a hash.
_DROPPED: dict[str, str] = dict.fromkeys("'’‘ʼ`´\"“”„«»!?", "") | dict.fromkeys(",;:()[]{}", " ")
_KEPT = re.compile(r"[A-Za-z0-9 _.+%@-]")
_SHORT_FORMS = {"rep": "republic", "dem": "democratic", "st": "saint"}


def split_sample(name: str) -> tuple[str, str]:
    """``"India (Current national sample)"`` -> ``("India", "current national")``; without a suffix the kind is national."""
    match = _SAMPLE.match(name)
    if match is None:
        return name.strip(), "national"
    return match["name"], " ".join(match["kind"].lower().split()) or "unnamed"


def tidy(name: str) -> str:
    """Any name as short ASCII without commas, brackets, quotes or slashes; idempotent, ``""`` only for blank names.

    Accents are folded. Where letters or signs have no ASCII form, or the name is longer than :data:`MAX_NAME`, eight
    digits of a hash of the whole name keep two such groups apart.
    """
    text = " ".join(name.split())
    pieces: list[str] = []
    lost = False
    for char in unicodedata.normalize("NFKD", "".join(_SPELLED.get(c, c) for c in text)):
        new: str = _SPELLED.get(char, _DROPPED.get(char, char))
        if new == char and not _KEPT.match(char):
            if char.isspace():
                new = " "
            else:
                new = ""
                lost = lost or not unicodedata.combining(char)
        pieces.append(new)
    short = " ".join("".join(pieces).split())
    if text and (lost or not short or len(short) > MAX_NAME):
        digest = hashlib.sha256(unicodedata.normalize("NFC", text).encode("utf-8", "surrogatepass")).hexdigest()[:8]
        short = f"{short[: MAX_NAME - 9].strip() or 'group'}-{digest}"
    return short


def canonical(name: str) -> str:
    """The canonical name of a group: a country's by any of its spellings or codes, else :func:`tidy` of the name.

    Spellings are found whatever their case, accents, punctuation and order of words ("Korea, Republic of"). ISO 3166
    codes must be in capitals here, or a community called "No" would become Norway; :func:`resolve`, which knows the
    groups at hand, takes them in any case. Use :func:`tidy` for what is no country. Idempotent.
    """
    short = tidy(name)
    return _codes().get(short) or _spellings().get(_key(short)) or short


def check_names(names: Iterable[str], where: str) -> None:
    """Raise UserError for a group that is called like an average (micro or macro, in any case).

    It is not renamed in :func:`tidy`: whoever named it should find it again under the name it has in the data.
    """
    for name in names:
        if name.strip().casefold() in AVERAGES:
            raise UserError(
                f"{where}: expected groups with other names than {' and '.join(AVERAGES)}, which are the averages over "
                f"groups, found the group {name!r}; rename it in the data, for example to '{name.strip()} group'"
            )


def resolve(names: Iterable[str], known: Iterable[str], whose: str = "the data") -> list[str]:
    """The groups among ``known`` that ``names`` mean, in the order of ``names``; ``whose`` says in messages what knows them.

    Raises:
        UserError: ``names`` is one string, a name means no known group (with "did you mean"), or two mean the same.
    """
    if isinstance(names, str):
        raise UserError(f"groups: expected a list of names, found {names!r}; write [{names}]")
    groups = sorted(set(known))
    by_key: dict[str, list[str]] = {}
    for group in groups:
        by_key.setdefault(_key(tidy(group)), []).append(group)
    found: dict[str, str] = {}
    for name in names:
        if not isinstance(name, str):
            raise UserError(f"groups: expected names, found {name!r} ({type(name).__name__}); put it in quotes")
        match = _find(name, groups, by_key)
        if match is None:
            hint = did_you_mean(canonical(name), groups) if groups else f" There are no groups in {whose}."
            raise UserError(f"groups: expected the name of a group in {whose}, found {name!r}.{hint}")
        if match in found:
            raise UserError(f"groups: {found[match]!r} and {name!r} are both {match}; name each group once")
        found[match] = name
    return list(found)


def slug(group: str) -> str:
    """A folder name for a group: letters, digits, underscore, dash and dot. Different groups get different names.

    Spaces become underscores; where anything else had to change (an underscore of the name's own included, which would
    look like a space) a hash of the name is appended. Names that differ only in case stay so, which file systems that
    ignore case do not tell apart.
    """
    plain = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]*(?: [A-Za-z0-9.-]+)*", group)
    # Windows ignores a trailing dot and reserves device names.
    reserved = group.endswith(".") or re.match(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\.|$)", group)
    if plain and not reserved and len(group) <= MAX_NAME:
        return group.replace(" ", "_")
    folded = re.sub(r"[^A-Za-z0-9.-]+", "_", tidy(group))[:MAX_NAME].strip("._-") or "group"
    return f"{folded}-{hashlib.sha256(group.encode('utf-8', 'surrogatepass')).hexdigest()[:10]}"


def _find(name: str, groups: list[str], by_key: dict[str, list[str]]) -> str | None:
    base, kind = split_sample(name)
    candidates = [name.strip(), canonical(name), canonical(name.strip().upper())]
    if kind in NATIONAL:
        candidates += [base, canonical(base)]
    for candidate in candidates:
        if candidate in groups:
            return candidate
    same_words = by_key.get(_key(tidy(name)), [])
    return same_words[0] if len(same_words) == 1 else None


def _key(short: str) -> str:
    """What identifies a spelling: its lower-case words in order of the alphabet, without "the" and "of"."""
    words = re.findall(r"[a-z0-9+%@]+", short.lower().replace(".", "" if re.search(r"\b\w\.\w", short) else " "))
    return " ".join(sorted(_SHORT_FORMS.get(w, w) for w in words if w not in ("the", "of")))


@functools.cache
def _codes() -> dict[str, str]:
    return {code: name for two, three, name, _ in countries.rows() for code in (two, three) if code}


@functools.cache
def _spellings() -> dict[str, str]:
    return {_key(tidy(s)): name for _, _, name, aliases in countries.rows() for s in (name, *aliases)}
