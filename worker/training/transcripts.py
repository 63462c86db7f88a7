"""Folders of recordings with what is said in them: `transcripts.tsv` (name, tab, text) beside the sound files, or sound
files that all say one sentence. What is wrong with such a folder is said before anything is trained on it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import soundfile

from worker.errors import TrainingError

TABLE = "transcripts.tsv"
SUFFIXES = (".flac", ".wav", ".mp3", ".ogg")
_SHOWN = 3
_SHORTEST_S, _LONGEST_S = 0.3, 60.0


@dataclass(frozen=True, slots=True)
class Spoken:
    """One recording: its name without suffix, its file, and the words in it."""

    name: str
    path: Path
    text: str


@dataclass(frozen=True, slots=True)
class Listing:
    """The usable recordings of a folder, and sentences about what is not usable."""

    recordings: tuple[Spoken, ...]
    remarks: tuple[str, ...]


def read_table(table: Path) -> dict[str, str]:
    """Texts by name. Raises TrainingError when the file cannot be read as UTF-8 lines of name, tab and text."""
    try:
        lines = table.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        raise TrainingError(f"{table} cannot be read ({problem}): it takes UTF-8 lines of name, tab, text") from problem
    texts = {}
    for number, line in enumerate(lines, 1):
        name, tab, text = line.partition("\t")
        if not tab and line.strip():
            raise TrainingError(f"{table}, line {number}: there is no tab; a line is a name, a tab and what is said")
        if name.strip():
            texts[_strip_suffix(name.strip())] = text.strip()
    return texts


def _strip_suffix(name: str) -> str:
    return Path(name).stem if Path(name).suffix.lower() in SUFFIXES else name


def list_recordings(folder: Path, sentence: str | None = None) -> Listing:
    """The recordings of a folder; all of them say `sentence` when there is one, else `transcripts.tsv` tells.

    Raises TrainingError when none of them is usable.
    """
    found = {path.stem: path for path in sorted(folder.iterdir()) if path.suffix.lower() in SUFFIXES}
    texts = dict.fromkeys(found, sentence) if sentence is not None else read_table(folder / TABLE)
    silent = [name for name, text in texts.items() if not text]
    gone = [name for name, text in texts.items() if text and name not in found]
    wordless = [name for name in found if name not in texts]
    spoken = [Spoken(name, found[name], text) for name, text in texts.items() if text and name in found]
    bad = [recording.name for recording in spoken if not is_readable(recording.path)]
    usable = tuple(recording for recording in spoken if recording.name not in set(bad))
    remarks = tuple(
        f"{folder.name}: {len(names)} {what} ({', '.join(names[:_SHOWN])}{', ...' if len(names) > _SHOWN else ''})"
        for names, what in (
            (silent, "lines without a text are left out"),
            (gone, "transcripts have no sound file"),
            (wordless, "sound files have no transcript"),
            (bad, "sound files cannot be read, or are not between 0.3 and 60 s long"),
        )
        if names
    )
    if not usable:
        raise TrainingError(_describe_empty(folder, remarks))
    return Listing(usable, remarks)


def _describe_empty(folder: Path, remarks: Sequence[str]) -> str:
    reason = "; ".join(remarks) or "it is empty"
    return (
        f"{folder} holds no usable recording ({reason}): put sound files ({', '.join(SUFFIXES)}) there and a {TABLE} "
        "with a line for each, its name, a tab and what is said"
    )


def is_readable(path: Path) -> bool:
    """Whether a sound file opens and has a sensible length."""
    try:
        return _SHORTEST_S <= soundfile.info(path).duration <= _LONGEST_S
    except (RuntimeError, OSError):
        return False
