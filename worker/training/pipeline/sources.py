"""The recordings of `--data`: which folders there are to learn from, and which are kept for judging."""

from dataclasses import dataclass
from pathlib import Path

from worker.errors import TrainingError
from worker.training.transcripts import TABLE, list_recordings

SENTENCES = "sentences.txt"
_ONE_SENTENCE_PREFIX = "piper-"
_ONE_SENTENCE = (
    "Friends fell out often because life was changing so fast. "
    "The easiest thing in the world was to lose touch with someone."
)
_JUDGED = "test"

ORIGINS = {
    "librispeech": "LibriSpeech train-clean-100 (CC BY 4.0, V. Panayotov et al., openslr.org/12)",
    "ljspeech": "LJ Speech (public domain)",
    "piper-libritts": "speech of Piper's LibriTTS-R voice (samples Apache-2.0, corpus CC BY 4.0)",
    "piper-vctk": "speech of Piper's VCTK voice (samples Apache-2.0, corpus CC BY 4.0)",
}


@dataclass(frozen=True, slots=True)
class Source:
    """A folder to learn from; `text` is what all its files say, None when a table tells."""

    folder: Path
    text: str | None
    files: int

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.name

    @property
    def origin(self) -> str:
        """Where it comes from, with its licence as far as it is known."""
        known = (origin for prefix, origin in ORIGINS.items() if self.name.startswith(prefix))
        return next(known, f"recordings of the folder {self.name}")


@dataclass(frozen=True, slots=True)
class Found:
    """What a data folder holds: sources, people to judge with (None without), remarks, and prompts (None without)."""

    sources: tuple[Source, ...]
    people: Path | None
    remarks: tuple[str, ...]
    prompts: Path | None


def find_sources(data: Path) -> Found:
    """Look through a data folder and the folders in it.

    A folder with "test" in its name is for judging and never learnt from. Raises TrainingError when the folder is not
    there or holds nothing to learn from.
    """
    if not data.is_dir():
        raise TrainingError(f"--data {data} is not a folder: name one with recordings, or leave it out")
    sources, people, remarks = [], None, []
    for folder in [data, *sorted(path for path in data.iterdir() if path.is_dir())]:
        text = _ONE_SENTENCE if folder.name.startswith(_ONE_SENTENCE_PREFIX) else None
        if text is None and not (folder / TABLE).exists():
            continue
        if _JUDGED in folder.name:
            people = folder
            remarks.append(f"{folder.name} is for judging: nothing is trained on it")
            continue
        listing = list_recordings(folder, text)
        sources.append(Source(folder.resolve(), text, len(listing.recordings)))
        remarks += listing.remarks
    if not sources:
        raise TrainingError(
            f"--data {data} holds nothing to learn from: it takes folders with sound files and a {TABLE} (name, tab, "
            "what is said); folders with 'test' in their names are for judging alone"
        )
    prompts = data / SENTENCES
    return Found(tuple(sources), people, tuple(remarks), prompts if prompts.exists() else None)
