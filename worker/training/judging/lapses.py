"""Lapses: words that were lost, repeated or invented, told apart from words that were merely misheard.

A recogniser that mishears writes other letters, about as many; a voice that lapses leaves letters out or adds some.
So what was heard is aligned with what was asked for, word by word (fewest changes), and each stretch between words
that agree is weighed by its letters:

- *lost*: at least four letters fewer were heard than asked for, and less than six tenths of them;
- *added*: at least four letters more were heard than asked for, of which those asked for are less than six tenths
  ("some one" for "someone" is neither, and so is a lost "the", which recognisers drop from real speech as well);
- *repeated*: a run of one to four words is heard twice or more in a row and was not asked for so;
- *silent*: nothing at all was heard;
- *babbled*: of at least four words more than half were wrong;
- *cut short*, *running on*: a piece takes less time a symbol than anybody needs, or stops only at the ceiling of the
  decoder. Known for the bundle's own speech alone.

Of a lone word or letter a recogniser makes what it likes ("all right" for "R"), so there something was added only if
the speech also lasts half as long again as the teacher's.

A sentence with any of them counts once. Real recordings do not lapse, so their share tells what the recogniser adds.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum

_LETTERS = 4
_SHARE = 0.6
_LONGEST_RUN = 4
_BABBLED_FROM = 4
_STRETCHED = 1.5

Stretch = tuple[list[str], list[str]]


class Lapse(StrEnum):
    """What went wrong in a sentence."""

    LOST = "lost"
    ADDED = "added"
    REPEATED = "repeated"
    SILENT = "silent"
    BABBLED = "babbled"
    CUT_SHORT = "cut short"
    RUNNING_ON = "running on"


def find_lapses(
    wanted: Sequence[str], found: Sequence[str], cut_short: int = 0, running_on: int = 0, stretch: float = 2.0
) -> list[Lapse]:
    """Every kind of lapse in a sentence, given its normalised words, those heard, the pieces of a wrong length, and how
    much longer than the teacher's it is."""
    stretches = list(differing_stretches(wanted, found))
    wrong = sum(max(len(said), len(heard)) for said, heard in stretches)
    signs = {
        Lapse.LOST: any(_outweighs(said, heard) for said, heard in stretches),
        Lapse.ADDED: any(_outweighs(heard, said) for said, heard in stretches)
        and (len(wanted) > 1 or stretch >= _STRETCHED),
        Lapse.REPEATED: bool(repeated_runs(found) - repeated_runs(wanted)),
        Lapse.SILENT: not found,
        Lapse.BABBLED: len(wanted) >= _BABBLED_FROM and wrong > len(wanted) / 2,
        Lapse.CUT_SHORT: cut_short > 0,
        Lapse.RUNNING_ON: running_on > 0,
    }
    return [lapse for lapse, seen in signs.items() if seen]


def _outweighs(heavy: Sequence[str], light: Sequence[str]) -> bool:
    more, less = len("".join(heavy)), len("".join(light))
    return more - less >= _LETTERS and less < _SHARE * more


def repeated_runs(words: Sequence[str]) -> set[tuple[str, ...]]:
    """Runs of one to four words that follow upon themselves."""
    return {
        tuple(words[at : at + size])
        for size in range(1, _LONGEST_RUN + 1)
        for at in range(len(words) - 2 * size + 1)
        if words[at : at + size] == words[at + size : at + 2 * size]
    }


def differing_stretches(wanted: Sequence[str], found: Sequence[str]) -> Iterator[Stretch]:
    """The stretches (asked for, heard) between words that agree, in an alignment of the fewest changes."""
    said: list[str] = []
    heard: list[str] = []
    for left, right in align_words(wanted, found):
        if left is not None and left == right:
            if said or heard:
                yield said, heard
            said, heard = [], []
            continue
        said += [left] if left is not None else []
        heard += [right] if right is not None else []
    if said or heard:
        yield said, heard


def align_words(wanted: Sequence[str], found: Sequence[str]) -> list[tuple[str | None, str | None]]:
    """Pairs of words; None stands where one side has nothing (Levenshtein distance, traced back from the end)."""
    costs = [list(range(row, row + len(found) + 1)) for row in range(len(wanted) + 1)]
    for row, left in enumerate(wanted, 1):
        for column, right in enumerate(found, 1):
            other = min(costs[row - 1][column], costs[row][column - 1]) + 1
            costs[row][column] = min(other, costs[row - 1][column - 1] + (left != right))
    pairs: list[tuple[str | None, str | None]] = []
    row, column = len(wanted), len(found)
    while row or column:
        here = costs[row][column]
        if row and column and here == costs[row - 1][column - 1] + (wanted[row - 1] != found[column - 1]):
            row, column = row - 1, column - 1
            pairs.append((wanted[row], found[column]))
        elif row and here == costs[row - 1][column] + 1:
            row -= 1
            pairs.append((wanted[row], None))
        else:
            column -= 1
            pairs.append((None, found[column]))
    return pairs[::-1]
