"""Where a report goes: into the folder that was asked for, and, to be kept, beside the bundle."""

import json
from collections.abc import Sequence
from pathlib import Path

from worker.sv2tts.bundle import MANIFEST
from worker.training.judging.evaluation import Outcome
from worker.training.judging.hearing import Judgement, Kind, Task
from worker.training.judging.listening import MOST_SPEAKERS, Chapter, Clip, Row, choose_evenly, write_page
from worker.training.judging.notebook import Notebook
from worker.training.judging.plan import REAL
from worker.training.judging.report import LABELS, flat_figures, format_figure, to_json, to_markdown

JSON, MARKDOWN, PAGE = "evaluation.json", "evaluation.md", "listening.html"


def write_text(path: Path, text: str) -> None:
    """Write a file beside its place and move it there; raises OSError."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def write_report(out: Path, outcome: Outcome) -> list[Path]:
    """Write evaluation.json, evaluation.md and listening.html; their paths."""
    report = json.dumps(to_json(outcome.evaluation), indent=1, ensure_ascii=False) + "\n"
    texts = {JSON: report, MARKDOWN: to_markdown(outcome.evaluation), PAGE: make_page(outcome)}
    for name, text in texts.items():
        write_text(out / name, text)
    return [out / name for name in texts]


def record(bundle: Path, out: Path) -> None:
    """Store the report beside a bundle, and its figures in the manifest as `speech`."""
    for name in (JSON, MARKDOWN):
        write_text(bundle / name, (out / name).read_text(encoding="utf-8"))
    figures = json.loads((out / JSON).read_text(encoding="utf-8"))["figures"]
    manifest = json.loads((bundle / MANIFEST).read_text(encoding="utf-8"))
    manifest["figures"] = {**manifest.get("figures", {}), "speech": figures}
    write_text(bundle / MANIFEST, json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")


def make_page(outcome: Outcome) -> str:
    """The listening page."""
    figures = flat_figures(outcome.evaluation)
    shown = [(label, format_figure(name, figures[name])) for name, label in LABELS.items() if name in figures]
    named = {one.name: one for one in outcome.people}
    chapters = [
        Chapter(name, Clip("reference", named[name].reference.wav, named[name].reference.text), rows)
        for name in choose_evenly(sorted(named), MOST_SPEAKERS)
        if (rows := _rows(name, outcome.kept, outcome.notebook))
    ]
    bundle = outcome.evaluation.bundle
    return write_page(f"Listening to the voice {bundle['name']}, version {bundle['version']}", shown, chapters)


def _rows(speaker: str, kept: Sequence[tuple[Task, Judgement]], notebook: Notebook) -> list[Row]:
    """A row for each text that somebody's clone says, with the recording of the same words where there is one."""
    own = [pair for pair in kept if pair[0].speaker == speaker]
    texts = dict.fromkeys(task.text for task, _ in own if task.kind is not Kind.RECORDING)
    return [Row(text, [_clip(*pair, notebook) for pair in own if pair[0].text == text]) for text in texts]


def _clip(task: Task, judgement: Judgement, notebook: Notebook) -> Clip:
    label = "recording" if task.system == REAL else f"output ({task.system})"
    notes = [] if judgement.likeness is None else [f"likeness {judgement.likeness:.2f}"]
    notes += [] if judgement.distillmos is None else [f"DistillMOS {judgement.distillmos:.1f}"]
    notes += judgement.lapses
    notes += [f"heard: {judgement.heard}"] if judgement.errors and judgement.heard else []
    return Clip(label, notebook.sound(task), "; ".join(notes))
