"""How good a vocoder is on copies: recordings made into log-mels and back.

    python -m worker.training.vocoder.evaluate --bundle bundles/base --recordings DIR [--recogniser MODEL_DIR]

`DIR` holds FLAC files and `transcripts.tsv` (name, text); nobody has to be told apart, so one speaker is enough. Prints
JSON: naturalness (DistillMOS, when the `distillmos` package is installed) and word error rate of the recordings and of
their copies, and seconds of work a second of speech when frames come eight at a time. `worker.training.judging` has the
same in its columns `real` and `copies`, for people who are judged.
"""

import argparse
import csv
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import soundfile

from worker.sv2tts.bundle import Bundle
from worker.sv2tts.fit import VOCODERS
from worker.sv2tts.mel import SAMPLE_RATE, Floats
from worker.sv2tts.vocoder import Vocoder
from worker.training.judging.naturalness import load_distillmos
from worker.training.judging.people import read_recording, to_ear
from worker.training.judging.speakers import copy_recording
from worker.training.recognition import Recogniser, WhisperRecogniser, count_errors, normalize_words

_LONGEST_S = 12


def read_recordings(root: Path, limit: int) -> list[tuple[Floats, str]]:
    """Recordings at 24 kHz at a common loudness, with what is said; spread evenly over the folder."""
    with (root / "transcripts.tsv").open(encoding="utf-8", newline="") as file:
        texts = dict(row[:2] for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    paths = [path for path in sorted(root.glob("*.flac")) if soundfile.info(path).duration < _LONGEST_S]
    chosen = paths[:: max(1, len(paths) // limit)][:limit]
    return [(read_recording(path), texts.get(path.name, texts.get(path.stem, ""))) for path in chosen]


def error_rate(sounds: Iterable[Floats], texts: Iterable[str], recogniser: Recogniser) -> float:
    """Word error rate of sounds at 16 kHz."""
    pairs = [
        (normalize_words(text), normalize_words(recogniser.transcribe(sound)))
        for sound, text in zip(sounds, texts, strict=True)
    ]
    return sum(count_errors(*pair) for pair in pairs) / sum(len(wanted) for wanted, _ in pairs)


def evaluate(vocoder: Vocoder, recordings: list[tuple[Floats, str]], recogniser: Recogniser | None) -> dict[str, float]:
    """The figures."""
    copies = [copy_recording(vocoder, wav) for wav, _ in recordings]
    sounds = {"recordings": [wav for wav, _ in recordings], "copies": [copy.wav for copy in copies]}
    judge, seconds = load_distillmos(), sum(len(wav) for wav, _ in recordings) / SAMPLE_RATE
    figures = {"seconds": seconds, "real_time_factor": sum(copy.stages["vocoder"] for copy in copies) / seconds}
    for name, wavs in sounds.items():
        low = [to_ear(wav) for wav in wavs]
        if judge is not None:
            figures[f"distillmos_{name}"] = float(np.mean([judge(wav) for wav in low]))
        if recogniser is not None:
            figures[f"word_error_rate_{name}"] = error_rate(low, [text for _, text in recordings], recogniser)
    return figures


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Judge a vocoder by copies of recordings.")
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--recordings", type=Path, required=True)
    parser.add_argument("--vocoder", default="vocoder", choices=VOCODERS)
    parser.add_argument("--limit", type=int, default=20, help="recordings to copy")
    parser.add_argument("--recogniser", type=Path, help="folder of a CTranslate2 Whisper model")
    options = parser.parse_args()
    recogniser = WhisperRecogniser(options.recogniser) if options.recogniser else None
    vocoder = Vocoder(Bundle.load(options.bundle), graph=options.vocoder)
    print(json.dumps(evaluate(vocoder, read_recordings(options.recordings, options.limit), recogniser), indent=1))


if __name__ == "__main__":
    main()
