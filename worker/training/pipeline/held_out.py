"""People to judge with where there are no recordings: pseudo-speakers that no training run draws."""

from pathlib import Path

import numpy as np
import soundfile

from worker.training.render import SAMPLE_RATE, Array, Renderer, Speaker

FIRST_SEED = 7_000_000_000
"""Beyond the seeds of the speakers that are rendered to learn from."""

_RECORDINGS = (
    ("We walked along the river until it got dark.", "Then we took the last bus home, and nobody said a word."),
    ("The museum has a small collection of old maps and clocks.",),
    ("Please leave your name and number after the tone.",),
)


def write_people(out: Path, count: int) -> None:
    """Write recordings `SPEAKER-n.flac` of some pseudo-speakers, and `transcripts.tsv` last, which makes it whole."""
    if (out / "transcripts.tsv").exists():
        return
    out.mkdir(parents=True, exist_ok=True)
    renderer, lines = Renderer(), []
    for person in range(count):
        speaker = Speaker.draw(FIRST_SEED + person)
        for number, sentences in enumerate(_RECORDINGS):
            name = f"pseudo{person}-{number}"
            soundfile.write(out / f"{name}.flac", _say(renderer, sentences, speaker), SAMPLE_RATE)
            lines.append(f"{name}\t{' '.join(sentences)}\n")
    part = out / "transcripts.part"
    part.write_text("".join(lines), encoding="utf-8")
    part.rename(out / "transcripts.tsv")


def _say(renderer: Renderer, sentences: tuple[str, ...], speaker: Speaker) -> Array:
    renderings = (renderer.render(sentence, speaker, number) for number, sentence in enumerate(sentences))
    wavs = [rendering.wav for rendering in renderings if rendering is not None]
    return np.clip(np.concatenate(wavs), -1, 1)
