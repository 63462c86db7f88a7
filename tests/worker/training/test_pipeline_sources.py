"""worker.training.transcripts and the pipeline's look at a data folder: what is learnt from, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from worker.errors import TrainingError
from worker.training.pipeline.sealing import describe_origins
from worker.training.pipeline.sources import find_sources
from worker.training.transcripts import list_recordings, read_table


def write_sound(path: Path, seconds: float = 1.0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, np.sin(np.arange(int(seconds * 16000)) / 20).astype(np.float32) / 4, 16000)


def test_names_may_have_suffixes_and_blank_lines_are_no_fault(tmp_path: Path) -> None:
    """A table is lines of name, tab and text; a byte order mark and a suffix in the name do no harm."""
    (tmp_path / "transcripts.tsv").write_text("\ufeffone.wav\tHello there.\n\nv1.2\tYes.\n", encoding="utf-8")
    assert read_table(tmp_path / "transcripts.tsv") == {"one": "Hello there.", "v1.2": "Yes."}


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"one Hello\n", "line 1: there is no tab"), (b"one\t\xff\xfe\n", "cannot be read"), (None, "cannot be read")],
)
def test_a_table_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None, said: str) -> None:
    """The file, the line and what a line has to be are in the sentence."""
    table = tmp_path / "transcripts.tsv"
    if content is not None:
        table.write_bytes(content)
    with pytest.raises(TrainingError, match=rf"transcripts\.tsv.*{said}"):
        read_table(table)


def test_what_does_not_fit_together_is_told_and_left_out(tmp_path: Path) -> None:
    """Transcripts without files, files without transcripts, empty texts and unreadable audio: each has its remark."""
    for name in ("good", "wordless", "silent"):
        write_sound(tmp_path / f"{name}.wav")
    write_sound(tmp_path / "short.wav", 0.1)
    (tmp_path / "broken.flac").write_bytes(b"fLaC nonsense")
    names = {"good": "Hello.", "gone": "Hello.", "broken": "Hello.", "short": "Hello.", "silent": ""}
    (tmp_path / "transcripts.tsv").write_text("".join(f"{name}\t{text}\n" for name, text in names.items()))
    listing = list_recordings(tmp_path)
    assert [recording.name for recording in listing.recordings] == ["good"]
    told = "\n".join(listing.remarks)
    for part in ("1 transcripts have no sound file (gone)", "1 sound files have no transcript (wordless)"):
        assert part in told
    assert "2 sound files cannot be read, or are not between 0.3 and 60 s long (broken, short)" in told
    assert "1 lines without a text are left out (silent)" in told


def test_a_folder_without_a_usable_recording_is_refused(tmp_path: Path) -> None:
    """The reason and the fix are told."""
    (tmp_path / "transcripts.tsv").write_text("gone\tHello.\n")
    with pytest.raises(
        TrainingError, match=r"no usable recording .*1 transcripts have no sound file \(gone\).*put sound"
    ):
        list_recordings(tmp_path)


def test_the_layout_of_a_data_folder_is_understood(tmp_path: Path) -> None:
    """Folders with a table, folders of one sentence and prompts are found; a test set is for judging alone."""
    for folder in ("librispeech-train-clean-100", "librispeech-test-other"):
        write_sound(tmp_path / folder / "1-2.flac")
        (tmp_path / folder / "transcripts.tsv").write_text("1-2\tHELLO\n")
    soundfile.write(tmp_path / "x.wav", np.zeros(16000, np.float32), 16000)
    (tmp_path / "piper-vctk-109").mkdir()
    write_sound(tmp_path / "piper-vctk-109" / "0.flac")
    (tmp_path / "sentences.txt").write_text("Hello.\n")
    found = find_sources(tmp_path)
    assert [(source.name, source.text is None) for source in found.sources] == [
        ("librispeech-train-clean-100", True),
        ("piper-vctk-109", False),
    ]
    assert found.people == tmp_path / "librispeech-test-other"
    assert "librispeech-test-other is for judging: nothing is trained on it" in found.remarks
    assert found.prompts == tmp_path / "sentences.txt"
    assert found.sources[0].origin.startswith("LibriSpeech train-clean-100 (CC BY 4.0")


def test_a_test_set_alone_is_nothing_to_learn_from(tmp_path: Path) -> None:
    """A folder that holds only what is for judging is refused, and so are an empty one and one that is not there."""
    write_sound(tmp_path / "some-test" / "1-2.flac")
    (tmp_path / "some-test" / "transcripts.tsv").write_text("1-2\tHello\n")
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "some-test", tmp_path, tmp_path / "empty"):
        with pytest.raises(TrainingError, match="holds nothing to learn from"):
            find_sources(folder)
    with pytest.raises(TrainingError, match="is not a folder"):
        find_sources(tmp_path / "gone")


def test_the_source_of_a_file_is_what_it_was_trained_on() -> None:
    """All origins are named, and the bundle that the weights began from."""
    assert describe_origins(["a"], None) == "trained on a"
    assert describe_origins(["a", "b", "c"], "base") == (
        "begun from the weights of the bundle 'base', then trained on a, b and c"
    )
