"""Where speech may pause: what the end of a word says about it, and where a run without marks is best cut.

Pure functions over single words; the state of a stream is `relay.speaking.sentences`'s.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from enum import StrEnum, auto

MAX_WORDS = 9
"""Words of the longest sentence; any run between white space counts, whatever it is made of."""

MAX_CHARACTERS = 200
"""Characters of the longest sentence, with one space between words."""

WIDE_STOPS = frozenset("。！？｡؟۔।॥։።။")
"""Marks that end a sentence without white space after them, as the scripts that use them write none."""

TIGHT_DASH = "—"
"""The dash that parts two clauses even where no white space stands around it."""

CLOSERS = frozenset("\"'”’»›)]}>*_`~」』）】》〉〕］｝＂")
"""Closing quotes, brackets and markup; they belong to what stands before them."""

_STOPS = frozenset(".!?…‼⁇⁈⁉‽．") | WIDE_STOPS
_PAUSES = frozenset(",;:—–，、；：،؛")
_HYPHENS = frozenset("-‐‑−")
_FEWEST_IN_RUN = 4


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_TITLES = _set("mr mrs ms mx dr prof messrs mme mlle")
_RANKS = _set("Gen Col Capt Cpt Cmdr Lt Sgt Maj Adm Gov Sen Rep Rev Hon Pres Supt Fr Mt Ft")
_INNER = _set("e.g i.e eg ie vs cf viz approx")
_NUMBERED = _set("no nos fig figs vol vols ch sec art eq ed p pp jan feb mar apr jun jul aug sep sept oct nov dec")
_HOURS_AND_LISTS = _set("a.m p.m etc al")
_SHORT_FORMS = _set("st ave blvd rd hwy jr sr inc ltd co corp bros dept univ assn est ext ph.d govt tel")
_DOTTED = re.compile(r"[^\W\d_](?:\.[^\W\d_])*")
_LIST_NUMBER = re.compile(r"\d{1,3}\.")

_STARTERS = _set(
    "a all and as at before both but each even every everyone everything finally first for he her here his how"
    " however i i'm if in instead it it's its just many meanwhile most my nobody nothing now on once one our she"
    " since so some someone still that that's the their then there there's these they this those though to today"
    " we we're what when where while why with yes yesterday you your"
)
_CONJUNCTIONS = _set(
    "and but or nor so yet because although though while whereas if unless until when since that which who where"
    " as than"
)
_PREPOSITIONS = _set(
    "of in on at by for with from to into onto about over under after before between through during without"
    " within against among across behind beyond near toward towards upon along around"
)
_ARTICLES = _set("a an the my your his her its our their this that these those no every each")


class Edge(StrEnum):
    """What the end of a word says about the place after it; the last three ask the next word."""

    OPEN = auto()
    CUT = auto()
    CUT_UNLESS_NUMBER = auto()
    CUT_IF_CAPITAL = auto()
    CUT_IF_STARTER = auto()


def has_sound(text: str) -> bool:
    """Whether anything in it can be spoken: a letter or a digit."""
    return any(map(str.isalnum, text))


def judge_edge(previous: str, word: str, *, enough: bool) -> Edge:
    """What the end of `word` says; `previous` is the word before it in its piece, empty for none.

    `enough` says whether the piece has the words that a pause needs; a full stop needs none.
    """
    core = _strip_silent_end(word)
    mark = core[-1:]
    if mark in _STOPS and mark:
        return _judge_stop(previous, core)
    before = core[:-1] or previous
    if not enough or not (mark in _PAUSES if mark else set(word) <= _HYPHENS):
        return Edge.OPEN
    if _name_of(before.removesuffix(".")) in _INNER:
        return Edge.OPEN
    return Edge.CUT_UNLESS_NUMBER if before[-1:].isdigit() else Edge.CUT


def confirms_cut(edge: Edge, following: str) -> bool:
    """Whether the next word turns an edge that asked for it into a cut; for a number or a capital its first
    letter or digit will do."""
    first = next(filter(str.isalnum, following), "")
    match edge:
        case Edge.CUT_UNLESS_NUMBER:
            return not following[:1].isdigit()
        case Edge.CUT_IF_CAPITAL:
            return not (first.islower() or first.isdigit() or not first)
        case Edge.CUT_IF_STARTER:
            return first.isupper() and _name_of(following) in _STARTERS
        case _:
            return edge is Edge.CUT


def choose_run_cut(words: Sequence[str], following: str) -> int:
    """How many of these `MAX_WORDS` words to speak, when `following` begins one too many.

    The last conjunction from the fifth word on starts the rest, else the last preposition; else the run is
    cut as late as it can be without parting an article, a title or a number from what it belongs to.
    """
    for joints in (_CONJUNCTIONS, _PREPOSITIONS):
        for place in range(len(words) - 1, _FEWEST_IN_RUN - 1, -1):
            joint = _name_of(words[place]) in joints
            if joint and not _leans_on_next(words[place - 1], words[place]):
                return place
    place = len(words)
    while place > _FEWEST_IN_RUN and _leans_on_next(words[place - 1], following):
        place, following = place - 1, words[place - 1]
    return place if place > _FEWEST_IN_RUN else len(words)


def choose_inner_cut(word: str, following: str) -> int:
    """Where to cut a word of `MAX_CHARACTERS` without white space: in its second half, after a mark."""
    half = len(word) // 2
    for place in range(len(word), half, -1):
        near = word[place - 2 : place] + (word + following)[place : place + 1]
        if not (word[place - 1].isalnum() or _is_attached(word[place - 1])) and not _is_inside_number(near):
            return place
    place = len(word)
    while place > half and _is_attached((word + following)[place]):
        place -= 1
    return place if place > half else len(word)


def _judge_stop(previous: str, core: str) -> Edge:
    if not core.endswith(".") or core.endswith(".."):
        return Edge.CUT
    if not previous and _LIST_NUMBER.fullmatch(core):
        return Edge.OPEN
    name = core[:-1].lstrip("\"'“‘«‹([{<*_`~¿¡")
    lower = name.lower()
    if lower in _TITLES or lower in _INNER or name in _RANKS:
        return Edge.OPEN
    if lower in _NUMBERED:
        return Edge.CUT_UNLESS_NUMBER
    if lower in _HOURS_AND_LISTS:
        return Edge.CUT_IF_CAPITAL
    if lower in _SHORT_FORMS or _DOTTED.fullmatch(name):
        return Edge.CUT_IF_STARTER
    return Edge.CUT


def _strip_silent_end(word: str) -> str:
    """The word up to its last letter, digit or mark: without closing quotes, brackets, markup and emoji."""
    end = len(word)
    while end and not (word[end - 1].isalnum() or word[end - 1] in _STOPS or word[end - 1] in _PAUSES):
        end -= 1
    return word[:end]


def _name_of(word: str) -> str:
    """The word as the lists above have it: lower case, a plain apostrophe, no marks at its edges."""
    return word.lower().replace("’", "'").strip("\"'“”‘«»‹›()[]{}<>*_`~¿¡,;:!?…")


def _leans_on_next(word: str, following: str) -> bool:
    if word[-1:].isdigit() and following[:1].isdigit():
        return True
    name = word.strip("\"'“‘([*_")
    lower = name.lower()
    stem = name.removesuffix(".")
    if name.endswith(".") and (stem.lower() in _TITLES | _INNER or stem in _RANKS or len(stem) == 1):
        return True
    return lower in _ARTICLES


def _is_inside_number(near: str) -> bool:
    return len(near) == 3 and near[0].isdigit() and near[2].isdigit()


def _is_attached(character: str) -> bool:
    """Whether it belongs to the character before it: a combining mark, a joiner, a variation selector."""
    return unicodedata.category(character).startswith("M") or character in "\u200c\u200d"
