"""Everything that an evaluation asks for, as tasks: who says what in whose voice."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from worker.sv2tts.bundle import Bundle
from worker.sv2tts.mel import Floats
from worker.sv2tts.vocoder import Vocoder
from worker.training.judging.errors import JudgingError
from worker.training.judging.hearing import Kind, Task, kind_of
from worker.training.judging.notebook import mark_of, mark_of_speaking
from worker.training.judging.people import Person, Recording
from worker.training.judging.speakers import Clone, Spoken, Teacher, copy_recording

REAL, COPIES = "real", "copies"
MOST_SENTENCES, TRANSCRIPTS_EACH = 200, 2
_LISTENED = (Kind.QUESTION, Kind.NUMBERS, Kind.LONG)
_SHORTEST_TRANSCRIPT_S, _LONGEST_TRANSCRIPT_S = 3.0, 12.0


def read_sentences(path: Path) -> list[str]:
    """One sentence a line; raises JudgingError when there are none, or too many."""
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as problem:
        raise JudgingError(path, f"cannot be read ({problem})", "write one English sentence a line") from problem
    sentences = list(dict.fromkeys(line for line in lines if line))
    if not 0 < len(sentences) <= MOST_SENTENCES:
        fix = f"write 1 to {MOST_SENTENCES} English sentences, one a line"
        raise JudgingError(path, f"holds {len(sentences)} sentences", fix)
    return sentences


def transcripts_of(person: Person) -> list[Recording]:
    """The recordings of a person whose words are spoken anew."""
    fitting = [one for one in person.others if _SHORTEST_TRANSCRIPT_S <= one.seconds <= _LONGEST_TRANSCRIPT_S]
    return fitting[:TRANSCRIPTS_EACH]


def listened_to(sentences: Sequence[str]) -> list[str]:
    """The sentences of the listening page: the first of each of some kinds."""
    first: dict[Kind, str] = {}
    for sentence in sentences:
        first.setdefault(kind_of(sentence), sentence)
    chosen = [first[kind] for kind in _LISTENED if kind in first]
    return chosen or list(sentences[: len(_LISTENED)])


def graph_mark(bundle: Bundle, graph: str) -> str:
    """A checksum of one of the bundle's graphs and the code that runs them."""
    return mark_of(bundle.manifest["files"][f"{graph}.onnx"]["sha256"], mark_of_speaking())


def plan_clone(
    bundle: Bundle,
    vocoders: Mapping[str, Vocoder],
    people: Sequence[Person],
    embeddings: Mapping[str, Floats],
    sentences: Sequence[str],
) -> list[Task]:
    """Everybody's voice says every sentence, and some of the person's own words, with each vocoder."""
    graphs = ("encoder", "synthesizer_encoder", "synthesizer_decoder")
    voice, kept, tasks = mark_of(*(graph_mark(bundle, graph) for graph in graphs)), listened_to(sentences), []
    for name, vocoder in vocoders.items():
        clone = Clone(bundle, vocoder)
        for person in people:
            mark, embedding = mark_of(voice, graph_mark(bundle, name), person.mark), embeddings[person.name]
            own = transcripts_of(person)
            heard = {*kept, *(one.text for one in own[:1])}
            texts = [(text, kind_of(text), None) for text in sentences]
            tasks += [
                Task(name, person.name, kind, text, mark, partial(clone.speak, text, embedding), model, text in heard)
                for text, kind, model in [*texts, *((one.text, Kind.TRANSCRIPT, one.wav) for one in own)]
            ]
    return tasks


def plan_recordings(bundle: Bundle, vocoders: Mapping[str, Vocoder], people: Sequence[Person]) -> list[Task]:
    """What people recorded, as it is, and copied by each vocoder."""
    tasks = []
    for person in people:
        kept = {one.name for one in transcripts_of(person)[:1]}
        for one in person.others:
            mark = mark_of(person.mark, one.name)
            real = Task(REAL, person.name, Kind.RECORDING, one.text, mark, partial(Spoken, one.wav))
            tasks.append(replace(real, kept=one.name in kept))
            for name, vocoder in vocoders.items():
                system = copies_name(name)
                marked = mark_of(mark, graph_mark(bundle, name))
                copy = partial(copy_recording, vocoder, one.wav)
                tasks.append(Task(system, person.name, Kind.RECORDING, one.text, marked, copy, one.wav))
    return tasks


def copies_name(vocoder: str) -> str:
    """The system that copies recordings by a vocoder."""
    return COPIES if vocoder == "vocoder" else vocoder.replace("vocoder", COPIES)


def plan_teachers(teachers: Sequence[Teacher], sentences: Sequence[str]) -> list[Task]:
    """Every teacher says every sentence."""
    return [
        Task(teacher.name.split()[0], teacher.name, kind_of(text), text, "", partial(teacher.speak, text))
        for teacher in teachers
        for text in sentences
    ]
