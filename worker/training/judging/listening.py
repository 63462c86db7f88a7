"""The listening page: reference, output and recording side by side, each to hear and to see, in one file.

It holds people's voices, so it is written beside the report and never belongs into the repository.
"""

import base64
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import soundfile

from worker.sv2tts.mel import SAMPLE_RATE, Floats
from worker.training.judging.picture import draw_spectrogram

MOST_SPEAKERS = 6
MOST_BYTES = 2_900_000
_THINNESS = 0.85
"""Compression of the MP3, as libsndfile counts it: about 32 kbit/s."""

_STYLE = """
:root { color-scheme: light dark; --line: #8885; --soft: #8882; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); } h3 { font-weight: 500; }
table { border-collapse: collapse; } td, th { padding: .15rem .8rem .15rem 0; text-align: left; }
td { font-variant-numeric: tabular-nums; }
.row { display: grid; grid-template-columns: repeat(auto-fill, minmax(20rem, 1fr)); gap: 1rem; }
figure { margin: 0; padding: .7rem; background: var(--soft); border-radius: .5rem; }
figcaption { font-size: .9rem; margin-bottom: .4rem; } audio { width: 100%; height: 2.2rem; }
img { display: block; width: 100%; height: 8rem; border-radius: .3rem; margin-bottom: .4rem; }
.note { opacity: .75; font-size: .9rem; }
"""


@dataclass(frozen=True, slots=True)
class Clip:
    """A sound float32[N] at 24 kHz, and what stands above and below it."""

    label: str
    wav: Floats
    note: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """Clips of one text."""

    text: str
    clips: Sequence[Clip]


@dataclass(frozen=True, slots=True)
class Chapter:
    """One speaker: the reference, and what was said."""

    speaker: str
    reference: Clip
    rows: Sequence[Row]


def encode_mp3(wav: Floats) -> bytes:
    """Mono MP3 of float32[N] at 24 kHz."""
    buffer = io.BytesIO()
    sound = np.clip(wav, -1, 1)
    soundfile.write(buffer, sound, SAMPLE_RATE, format="MP3", subtype="MPEG_LAYER_III", compression_level=_THINNESS)
    return buffer.getvalue()


def _figure(clip: Clip) -> str:
    sound, image = (base64.b64encode(data).decode() for data in (encode_mp3(clip.wav), draw_spectrogram(clip.wav)))
    label, note = escape(clip.label), f'<div class="note">{escape(clip.note)}</div>' if clip.note else ""
    return (
        f'<figure><figcaption>{label}</figcaption><img alt="Spectrogram: {label}" src="data:image/png;base64,{image}">'
        f'<audio controls preload="none" aria-label="{label}" src="data:audio/mpeg;base64,{sound}"></audio>{note}'
        "</figure>"
    )


def _row(row: Row, reference: str) -> str:
    clips = "".join(_figure(clip) for clip in row.clips)
    return f'<h3>{escape(row.text)}</h3><div class="row">{reference}{clips}</div>'


def _sections(chapters: Sequence[Chapter]) -> Iterable[str]:
    for chapter in chapters:
        reference = _figure(chapter.reference)
        yield f"<h2>Speaker {escape(chapter.speaker)}</h2>"
        yield from (_row(row, reference) for row in chapter.rows)


def choose_evenly(names: Sequence[str], most: int = MOST_SPEAKERS) -> list[str]:
    """At most so many names, spread over the whole list."""
    places = np.linspace(0, len(names) - 1, min(most, len(names))).round().astype(int)
    return [names[place] for place in places]


def write_page(
    title: str, figures: Sequence[tuple[str, str]], chapters: Sequence[Chapter], most: int = MOST_BYTES
) -> str:
    """The page as HTML of at most about `most` bytes; what no longer fits is left out, and the page says so."""
    table = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in figures)
    head = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>'
        f"<h1>{escape(title)}</h1><p>This page holds recordings of people: keep it where they are kept.</p>"
        f"<table>{table}</table>"
    )
    parts, size = [head], len(head)
    for section in _sections(chapters):
        if size + len(section) > most:
            parts.append("<p>More would make this page too large.</p>")
            break
        parts.append(section)
        size += len(section)
    return "".join([*parts, "</body></html>\n"])
