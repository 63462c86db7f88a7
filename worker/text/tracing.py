"""Which written word a spoken one comes from, when rules have turned some words into others.

Most words stay as they are, and those that do not stand between some that do: the longest common runs of words are
matched first (Ratcliff and Obershelp, 1988), and what lies between two of them belongs together. Within such a stretch
the characters that were kept decide ("June 5," and "June fifth," or "9:30 PM" and "nine thirty P.M."), and words
that have none of them go to the written words that got nothing ("to" to the dash of "5 - 10"), else to the one before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher

_MOST_PAIRS = 20_000
"""Pairs of characters that are compared; a longer stretch is shared out evenly."""


def trace_words(written: Sequence[str], spoken: Sequence[str]) -> list[int]:
    """For each spoken word the number of the written one it belongs to, never falling; `written` is not empty."""
    if written == spoken:
        return list(range(len(written)))
    sources: list[int] = []
    matcher = SequenceMatcher(None, written, spoken, autojunk=False)
    for kind, low, high, start, stop in matcher.get_opcodes():
        if kind == "equal":
            sources.extend(range(low, high))
        elif low == high:
            # Said and not written: the unit of what was written before.
            sources.extend([max(0, low - 1)] * (stop - start))
        else:
            sources.extend(low + place for place in _share_out(written[low:high], spoken[start:stop]))
    return sources


def _share_out(written: Sequence[str], spoken: Sequence[str]) -> list[int]:
    """The same for a stretch in which no word was kept."""
    if len(written) == 1:
        return [0] * len(spoken)
    kept = _follow_characters(written, spoken)
    sources: list[int] = []
    while len(sources) < len(spoken):
        start = len(sources)
        source = kept[start]
        if source is not None:
            sources.append(max(source, sources[-1] if sources else 0))
            continue
        stop = next((place for place in range(start, len(spoken)) if kept[place] is not None), len(spoken))
        before = sources[-1] if sources else -1
        after = kept[stop] if stop < len(spoken) else len(written)
        free = list(range(before + 1, max(before + 1, after if after is not None else 0)))
        free = free or [max(0, before)]
        sources.extend(free[place * len(free) // (stop - start)] for place in range(stop - start))
    return sources


def _follow_characters(written: Sequence[str], spoken: Sequence[str]) -> list[int | None]:
    """For each spoken word the written one that most of its kept characters come from, None when it has none."""
    ours, theirs = "".join(written).lower(), "".join(spoken).lower()
    if len(ours) * len(theirs) > _MOST_PAIRS:
        return [None] * len(spoken)
    sources = [number for number, word in enumerate(written) for _ in word.lower()]
    targets = [number for number, word in enumerate(spoken) for _ in word.lower()]
    votes: list[Counter[int]] = [Counter() for _ in spoken]
    for block in SequenceMatcher(None, ours, theirs, autojunk=False).get_matching_blocks():
        for offset in range(block.size):
            if ours[block.a + offset].isalnum():
                votes[targets[block.b + offset]][sources[block.a + offset]] += 1
    return [vote.most_common(1)[0][0] if vote else None for vote in votes]
