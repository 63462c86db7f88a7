"""storage.settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.errors import SettingsError
from storage.settings import Settings

GOOD = {"DATABASE_URL": "postgresql://user:hunter2@host/name", "REDIS_URL": "redis://host:6379/0"}


def test_every_field_has_its_sentence_of_documentation() -> None:
    """A setting without one is not finished."""
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two server URLs by their usual names, everything else with the prefix."""
    for name, value in {**GOOD, "TIMBRELAY_WORKER_SLOTS": "7"}.items():
        monkeypatch.setenv(name, value)
    settings = Settings.read()
    assert (settings.redis_url, settings.worker_slots) == (GOOD["REDIS_URL"], 7)
    assert settings.owner_url == GOOD["DATABASE_URL"]


def test_a_lexicon_is_a_path_and_none_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the setting there is no user lexicon, which an empty path stands for."""
    for name, value in GOOD.items():
        monkeypatch.setenv(name, value)
    assert Settings.read().lexicon == Path()
    monkeypatch.setenv("TIMBRELAY_LEXICON", "words.tsv")
    assert Settings.read().lexicon == Path("words.tsv")


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"REDIS_URL": ""}, "REDIS_URL"),
        ({"REDIS_URL": "http://user:hunter2@host"}, "REDIS_URL"),
        ({"DATABASE_URL": "mysql://user:hunter2@host/name"}, "DATABASE_URL"),
        ({"TIMBRELAY_RELAY_PORT": "hunter2"}, "RELAY_PORT"),
        ({"TIMBRELAY_LOG_LEVEL": "hunter2"}, "LOG_LEVEL"),
    ],
)
def test_a_wrong_setting_is_named_and_not_shown(
    monkeypatch: pytest.MonkeyPatch, changed: dict[str, str], named: str
) -> None:
    """The error names the variable; what it holds may be a password."""
    for name, value in {**GOOD, **changed}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError, match=named) as caught:
        Settings.read()
    assert "hunter2" not in str(caught.value)
