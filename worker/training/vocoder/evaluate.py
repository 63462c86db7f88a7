"""How good a vocoder is on copies: recordings made into log-mels and back.

    python -m worker.training.vocoder.evaluate --bundle bundles/base --recordings DIR [--recogniser MODEL_DIR]

`DIR` holds FLAC files and `transcripts.tsv` (name, text). Prints JSON: naturalness (DistillMOS, when the `distillmos`
package is installed) and word error rate of the recordings and of their copies, and seconds of work a second of speech
when frames come eight at a time.
"""

import argparse
import csv
import importlib
import importlib.util
import json
import sys
import time
import types
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import soundfile
import soxr

from worker.sv2tts.bundle import Bundle
from worker.sv2tts.mel import SAMPLE_RATE, Floats, log_mel
from worker.sv2tts.vocoder import Vocoder
from worker.training.recognition import Recogniser, WhisperRecogniser, count_errors, normalize_words

JUDGE_RATE = 16000
_LOUDNESS = 0.06
_CHUNK_FRAMES = 8
_LONGEST_S = 12

Judge = Callable[[Floats], float]


def load_judge() -> Judge | None:
    """DistillMOS as a function of float32[N] at 16 kHz, or None without the package.

    It imports torchaudio for its own command line only; an empty module stands in where that is not installed.
    """
    if importlib.util.find_spec("distillmos") is None:
        return None
    if importlib.util.find_spec("torchaudio") is None:
        sys.modules["torchaudio"] = types.ModuleType("torchaudio")
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)
    model = importlib.import_module("distillmos").ConvTransformerSQAModel().eval()

    def judge(samples: Floats) -> float:
        with torch.no_grad():
            return float(model(torch.from_numpy(samples)[None])[0])

    return judge


def read_recordings(root: Path, limit: int) -> list[tuple[Floats, str]]:
    """Recordings at 24 kHz at a common loudness, with what is said; spread evenly over the folder."""
    with (root / "transcripts.tsv").open(encoding="utf-8", newline="") as file:
        texts = dict(row[:2] for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    paths = [path for path in sorted(root.glob("*.flac")) if soundfile.info(path).duration < _LONGEST_S]
    chosen = paths[:: max(1, len(paths) // limit)][:limit]
    return [(read_recording(path), texts.get(path.name, texts.get(path.stem, ""))) for path in chosen]


def read_recording(path: Path) -> Floats:
    """Mono float32[N] at 24 kHz, N a multiple of a frame, with an RMS of -24 dBFS."""
    samples, rate = soundfile.read(path, dtype="float32")
    wav = np.asarray(soxr.resample(samples, rate, SAMPLE_RATE), np.float32)
    wav = wav[: len(wav) // 240 * 240]
    return wav * np.float32(_LOUDNESS / np.sqrt(np.mean(wav**2)))


def copy_recording(vocoder: Vocoder, wav: Floats) -> tuple[Floats, float]:
    """The copy of a recording, and the seconds it took."""
    mel, stream, pieces = log_mel(wav), vocoder.start(), []
    began = time.process_time()
    for start in range(0, len(mel), _CHUNK_FRAMES):
        piece = mel[start : start + _CHUNK_FRAMES]
        pieces.append(stream.push(piece, final=start + _CHUNK_FRAMES >= len(mel)))
    return np.concatenate(pieces), time.process_time() - began


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
    sounds = {"recordings": [wav for wav, _ in recordings], "copies": [copy for copy, _ in copies]}
    judge, seconds = load_judge(), sum(len(wav) for wav, _ in recordings) / SAMPLE_RATE
    figures = {"seconds": seconds, "real_time_factor": sum(spent for _, spent in copies) / seconds}
    for name, wavs in sounds.items():
        low = [np.asarray(soxr.resample(wav, SAMPLE_RATE, JUDGE_RATE), np.float32) for wav in wavs]
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
    parser.add_argument("--limit", type=int, default=20, help="recordings to copy")
    parser.add_argument("--recogniser", type=Path, help="folder of a CTranslate2 Whisper model")
    options = parser.parse_args()
    recogniser = WhisperRecogniser(options.recogniser) if options.recogniser else None
    vocoder = Vocoder(Bundle.load(options.bundle))
    print(json.dumps(evaluate(vocoder, read_recordings(options.recordings, options.limit), recogniser), indent=1))


if __name__ == "__main__":
    main()
