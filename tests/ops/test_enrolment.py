"""What comes before a voice: consent, and a name for its recording."""

from __future__ import annotations

from pathlib import Path

import pytest

from timbrelay import enrolment
from timbrelay.enrolment import default_reference, fingerprint, read_recording, require_consent
from timbrelay.environment import Environment
from timbrelay.errors import OpsError, UsageFault


@pytest.mark.parametrize("answer", ["y", "Y", "yes", " Yes "])
def test_yes_is_consent(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    """Whoever is asked and says yes has given consent."""
    monkeypatch.setattr(enrolment, "is_interactive", lambda: True)
    monkeypatch.setattr("builtins.input", lambda question: answer)
    require_consent(False)


@pytest.mark.parametrize("answer", ["", "n", "no", "maybe", "yesterday"])
def test_anything_else_is_not(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    """Every other answer, silence included, is no consent."""
    monkeypatch.setattr(enrolment, "is_interactive", lambda: True)
    monkeypatch.setattr("builtins.input", lambda question: answer)
    with pytest.raises(OpsError, match="Without the speaker's consent no voice is made"):
        require_consent(False)


def test_nobody_to_ask_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a terminal consent must have been stated."""
    monkeypatch.setattr(enrolment, "is_interactive", lambda: False)
    require_consent(True)
    with pytest.raises(UsageFault, match="--consent"):
        require_consent(False)


def test_a_recording_is_known_again_by_its_content(tmp_path: Path) -> None:
    """The same recording has the same name wherever it lies: 12 hex digits of its SHA-256."""
    assert fingerprint(b"abc") == "ba7816bf8f01"
    with pytest.raises(UsageFault, match=r"none\.wav cannot be read"):
        read_recording(tmp_path / "none.wav")


def test_the_first_recording_is_in_the_checkout() -> None:
    """The synthetic recording that the demo begins with is there."""
    assert read_recording(default_reference(Environment.read({}))).startswith(b"RIFF")
