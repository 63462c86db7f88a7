"""How a text is to be spoken, as Cartesia's clients write it: the fields of a request, read and checked.

Fields that are not known are passed over, as Cartesia does: its clients are of many versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from relay.api.bodies import invalid
from relay.dialects.cartesia.output_format import OutputFormat, Sound, read_format
from relay.dialects.languages import check_language, find_base
from relay.errors import InvalidMessage, TextTooLong

MAX_TRANSCRIPT = 10_000
"""Characters of one message or request; a context takes ten times as much."""
DEFAULT_BUFFER_DELAY_MS = 3000
SLOWEST, FASTEST = 0.6, 2.0
_SPEEDS = {"slow": 0.8, "normal": 1.0, "fast": 1.25}
_NO_EMBEDDING = (
    "`voice.mode`: an embedding says nothing of its speaker's consent, so there is no voice for it here; make one with "
    "POST /voices/clone and send its `id`"
)
_VOICE = '`voice` must be the id of a voice or an alias, as text or as {"mode": "id", "id": "..."}'

Flag = bool | None
Model = TypeVar("Model", bound=BaseModel)


class GenerationConfig(BaseModel):
    """How the voice is to sound; only the speed has an effect here."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    speed: Annotated[float | None, Field(ge=SLOWEST, le=FASTEST, allow_inf_nan=False)] = None
    volume: Annotated[float | None, Field(ge=0, le=2, allow_inf_nan=False)] = None
    emotion: str | list[str] | None = None


class Wanted(BaseModel):
    """What every request for speech has."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    transcript: str
    model_id: Annotated[str | None, Field(max_length=200)] = None
    voice: Any = None
    output_format: OutputFormat | None = None
    language: Annotated[str | None, Field(max_length=35)] = None
    locale: Annotated[str | None, Field(max_length=35)] = None
    generation_config: GenerationConfig | None = None
    speed: Literal["slow", "normal", "fast"] | None = None
    add_timestamps: Flag = None
    add_phoneme_timestamps: Flag = None
    use_normalized_timestamps: Flag = None
    pronunciation_dict_id: str | None = None
    max_buffer_delay_ms: Annotated[int | None, Field(ge=0, le=5000)] = None


@dataclass(frozen=True, slots=True)
class Style:
    """How a context speaks, from its first words to its last."""

    voice: str
    sound: Sound
    speed: float
    timestamps: bool
    buffer_delay_s: float
    spelt: Mapping[str, object]
    """The fields that may not change, as they were understood, by the names that they have in a message."""

    def check_same(self, later: Wanted) -> None:
        """Raises InvalidMessage with the field in which a later message differs; it may leave out any of them."""
        given = {name for name, value in later if value is not None}
        for name, value in _spell(later).items():
            if name.partition(".")[0] in given and value != self.spelt[name]:
                message = f"`{name}` must stay the same in a context; open another one with another `context_id`"
                raise InvalidMessage(message, field=name)


def read_strictly(model: type[Model], value: object) -> Model:
    """A JSON value as a model; raises InvalidMessage with the field at fault and never what it holds."""
    try:
        return model.model_validate(value, strict=True)
    except ValidationError as error:
        told = invalid(error)
        raise InvalidMessage(told.message, field=told.field) from error


def check_transcript(text: str) -> None:
    """Raises TextTooLong, or InvalidMessage for text that is none."""
    if len(text) > MAX_TRANSCRIPT:
        raise TextTooLong(MAX_TRANSCRIPT, "request", field="transcript")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        message = f"`transcript` holds half of a surrogate pair at character {error.start}"
        raise InvalidMessage(f"{message}; split text between characters", field="transcript") from error


def read_style(wanted: Wanted, *, raw_only: bool) -> Style:
    """How the text is to be spoken; raises InvalidMessage with the field that is missing, wrong or not offered."""
    if wanted.voice is None:
        raise InvalidMessage("`voice` is missing: the id of one of your voices, or an alias", field="voice")
    if wanted.output_format is None:
        raise InvalidMessage("`output_format` is missing: container, encoding and sample_rate", field="output_format")
    if wanted.pronunciation_dict_id is not None:
        message = "`pronunciation_dict_id`: there are no pronunciation dictionaries here; leave it out"
        raise InvalidMessage(message, field="pronunciation_dict_id")
    _check_language(wanted)
    delay_ms = wanted.max_buffer_delay_ms
    return Style(
        voice=read_voice(wanted.voice),
        sound=read_format(wanted.output_format, raw_only=raw_only),
        speed=_read_speed(wanted),
        timestamps=bool(wanted.add_timestamps),
        buffer_delay_s=(DEFAULT_BUFFER_DELAY_MS if delay_ms is None else delay_ms) / 1000,
        spelt=_spell(wanted),
    )


def read_voice(voice: object) -> str:
    """The id or alias that is named, in any of the three ways to do so; raises InvalidMessage."""
    if isinstance(voice, dict):
        if voice.get("mode") == "embedding" or ("embedding" in voice and "id" not in voice):
            raise InvalidMessage(_NO_EMBEDDING, field="voice.mode")
        if voice.get("mode", "id") != "id":
            raise InvalidMessage("`voice.mode` must be `id`", field="voice.mode")
        voice = voice.get("id")
    if not isinstance(voice, str) or not 1 <= len(voice) <= 64:
        raise InvalidMessage(_VOICE, field="voice")
    return voice


def _check_language(wanted: Wanted) -> None:
    if wanted.language is not None and wanted.locale is not None:
        raise InvalidMessage("`language` and `locale` say the same: send one of them", field="locale")
    check_language("language", wanted.language)
    check_language("locale", wanted.locale)


def _read_speed(wanted: Wanted) -> float:
    config = wanted.generation_config
    if config is not None and config.speed is not None:
        return config.speed
    return _SPEEDS[wanted.speed or "normal"]


def _spell(wanted: Wanted) -> dict[str, object]:
    """What a context has to keep, with what stands for fields that were left out."""
    voice, delay_ms = wanted.voice, wanted.max_buffer_delay_ms
    config = wanted.generation_config or GenerationConfig()
    return {
        "model_id": wanted.model_id,
        "voice": voice.get("id") if isinstance(voice, dict) else voice,
        "output_format": wanted.output_format,
        "language": find_base(wanted.language),
        "locale": find_base(wanted.locale),
        "speed": wanted.speed or "normal",
        "generation_config.speed": config.speed,
        "generation_config.volume": config.volume,
        "generation_config.emotion": config.emotion,
        "add_timestamps": bool(wanted.add_timestamps),
        "add_phoneme_timestamps": bool(wanted.add_phoneme_timestamps),
        "use_normalized_timestamps": bool(wanted.use_normalized_timestamps),
        "pronunciation_dict_id": wanted.pronunciation_dict_id,
        "max_buffer_delay_ms": DEFAULT_BUFFER_DELAY_MS if delay_ms is None else delay_ms,
    }
