"""worker.training.judging.people and plan: whom a voice is judged with, and what is asked of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from worker.training.judging.command import SENTENCES, main
from worker.training.judging.errors import JudgingError
from worker.training.judging.hearing import Kind, active_seconds, kind_of, same_letter
from worker.training.judging.people import read_people
from worker.training.judging.plan import listened_to, read_sentences

BASE = Path(__file__).resolve().parents[3] / "bundles" / "base"
RATE = 8000


def _write(folder: Path, lengths: dict[str, float], told: bool = True) -> Path:
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(3)
    for name, seconds in lengths.items():
        soundfile.write(folder / f"{name}.wav", rng.standard_normal(int(seconds * RATE)) * 0.1, RATE)
    if told:
        (folder / "transcripts.tsv").write_text("".join(f"{name}\twhat {name} says\n" for name in lengths))
    return folder


def test_the_reference_is_the_first_recording_of_five_to_ten_seconds(tmp_path: Path) -> None:
    """It is not listened to again; recordings of more than twelve seconds are left out."""
    lengths = {"a-1": 4.0, "a-2": 6.0, "a-3": 7.0, "a-4": 13.0, "b-1": 5.0}
    one, other = read_people(_write(tmp_path / "people", lengths))
    assert (one.name, one.reference.name, one.reference.text) == ("a", "a-2", "what a-2 says")
    assert [recording.name for recording in one.others] == ["a-1", "a-3"]
    assert other.reference.seconds == pytest.approx(5.0, abs=0.02)
    assert not other.others


def test_without_a_fitting_recording_the_reference_is_made_of_others(tmp_path: Path) -> None:
    """The beginning of a longer one, or several short ones in a row; never more than ten seconds."""
    lengths = {"a-1": 2.0, "a-2": 15.0, "b-1": 3.0, "b-2": 2.5, "b-3": 2.0}
    one, other = read_people(_write(tmp_path / "people", lengths))
    assert one.reference.seconds == pytest.approx(10.0)
    assert [recording.name for recording in one.others] == ["a-1"]
    assert other.reference.seconds == pytest.approx(5.5, abs=0.02)
    assert other.reference.text == "what b-1 says what b-2 says"
    assert [recording.name for recording in other.others] == ["b-3"]


def test_recordings_are_brought_to_one_loudness(tmp_path: Path) -> None:
    """A quiet recording is no worse than a loud one."""
    for person in read_people(_write(tmp_path / "people", {"a-1": 5.0, "b-1": 6.0})):
        assert np.sqrt(np.mean(person.reference.wav**2)) == pytest.approx(0.06, rel=1e-3)


def _break(folder: Path, how: str) -> Path:
    lengths = {"a-1": 6.0, "b-1": 6.0}
    if how == "missing":
        return folder
    if how == "single":
        return _write(folder, {"a-1": 6.0, "a-2": 6.0})
    if how == "short":
        return _write(folder, {"a-1": 2.0, "b-1": 6.0})
    _write(folder, {} if how == "empty" else lengths, told=how != "untold")
    if how == "half told":
        (folder / "transcripts.tsv").write_text("a-1\thello\n")
    if how == "unreadable":
        (folder / "b-1.wav").write_bytes(b"this is no sound")
    if how == "silent":
        soundfile.write(folder / "b-1.wav", np.zeros(6 * RATE), RATE)
    if how == "binary":
        (folder / "transcripts.tsv").write_bytes(b"\xff\xfe\x00")
    return folder


FAULTS = {
    "missing": "cannot be opened as a folder",
    "empty": "holds no recordings",
    "single": "holds a single speaker, 'a'",
    "untold": "transcripts.tsv",
    "half told": "no transcript of any recording of speaker 'b'",
    "short": "only 2.0 s of speaker 'a'",
    "unreadable": "b-1.wav: cannot be decoded",
    "silent": "b-1.wav: holds no sound",
    "binary": "transcripts.tsv: cannot be read",
}


@pytest.mark.parametrize("how", FAULTS)
def test_people_that_nobody_can_judge_with_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    """What is wrong with a folder is one line with the fix and an exit status, no traceback."""
    people = _break(tmp_path / "people", how)
    assert main(["--bundle", str(BASE), "--people", str(people), "--out", str(tmp_path / "out")]) == 1
    message = capsys.readouterr().err
    assert FAULTS[how] in message
    assert "; " in message


def test_the_sentences_that_ship_are_of_every_kind() -> None:
    """At least twenty, short and long, with numbers and questions, one word, one letter and about sixty words."""
    kinds = [kind_of(sentence) for sentence in read_sentences(SENTENCES)]
    assert len(kinds) >= 20
    assert set(kinds) >= set(Kind) - {Kind.TRANSCRIPT, Kind.RECORDING}
    assert max(len(sentence.split()) for sentence in read_sentences(SENTENCES)) >= 60


def test_a_file_without_sentences_is_refused(tmp_path: Path) -> None:
    """Nothing to say is no evaluation."""
    (tmp_path / "empty.txt").write_text("\n\n")
    with pytest.raises(JudgingError, match="holds 0 sentences"):
        read_sentences(tmp_path / "empty.txt")
    with pytest.raises(JudgingError, match="cannot be read"):
        read_sentences(tmp_path / "gone.txt")


def test_a_few_kinds_are_listened_to() -> None:
    """The page has a question, a number and a long sentence, or what there is."""
    chosen = listened_to(read_sentences(SENTENCES))
    assert [kind_of(sentence) for sentence in chosen] == [Kind.QUESTION, Kind.NUMBERS, Kind.LONG]
    assert listened_to(["Yes."]) == ["Yes."]


def test_pauses_do_not_count_as_speech() -> None:
    """Silence before, within and after speech is not part of its length."""
    noise, hush = np.random.default_rng(1).standard_normal(24_000).astype(np.float32), np.zeros(12_000, np.float32)
    assert active_seconds(np.concatenate([hush, noise, hush, noise, hush])) == pytest.approx(2.0)
    assert active_seconds(np.zeros(0, np.float32)) == 0.0


def test_a_letter_may_be_written_as_its_name() -> None:
    """A single letter that was heard as the name of that letter was heard right."""
    assert same_letter(["m"], ["em"])
    assert not same_letter(["m"], ["you"])
    assert not same_letter(["be"], ["bee"])
