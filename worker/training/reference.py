"""Reference recordings of people who do not exist, for demonstrations and tests.

    python -m worker.training.reference --speaker 12 --text "Some sentences." --out reference.wav

renders a text in the voice of a pseudo-speaker: the teacher's one voice with other formants, pitch and breath.
"""

import argparse
from pathlib import Path

import numpy as np
import soundfile

from worker.training.render import SAMPLE_RATE, Renderer, Speaker


def write_reference(out: Path, text: str, speaker: int) -> None:
    """Write 16-bit mono WAV at 24 kHz; raises ValueError when the text has nothing to say."""
    rendering = Renderer().render(text, Speaker.draw(speaker), speaker)
    if rendering is None:
        raise ValueError("the text holds nothing that can be spoken")
    soundfile.write(out, np.clip(rendering.wav, -1, 1), SAMPLE_RATE, subtype="PCM_16")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Render a synthetic reference recording.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--text", required=True)
    parser.add_argument("--speaker", type=int, required=True, help="seed of the pseudo-speaker")
    options = parser.parse_args()
    write_reference(options.out, options.text, options.speaker)


if __name__ == "__main__":
    main()
