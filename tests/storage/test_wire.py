"""storage.streams.wire."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import MalformedEntry
from storage.streams.wire import (
    MAX_MEL_BYTES,
    MAX_TEXT_BYTES,
    MEL_FRAME_BYTES,
    Chunk,
    Failure,
    Job,
    Result,
    Timing,
    decode_job,
    decode_result,
    encode,
)

NAMES = st.text("abcdef0123456789", min_size=1, max_size=32)
COUNTS = st.integers(0, 2**31)
JOBS = st.builds(
    Job,
    relay=NAMES,
    context=NAMES,
    sentence=COUNTS,
    tenant=st.uuids(),
    voice=st.uuids(),
    version=COUNTS,
    deadline_ms=st.integers(0, 2**45),
    text=st.text(max_size=200),
    mel=st.booleans(),
)
PCM = st.binary(max_size=1920).map(lambda raw: raw[: len(raw) // 2 * 2])
MEL = st.integers(0, 9).flatmap(lambda frames: st.binary(min_size=160 * frames, max_size=160 * frames))
TIMINGS = st.tuples(st.integers(0, 2**16 - 1), COUNTS, COUNTS).map(lambda said: Timing(said[0], *sorted(said[1:])))
CHUNKS = st.builds(
    Chunk,
    context=NAMES,
    sentence=COUNTS,
    number=COUNTS,
    last=st.booleans(),
    pcm=PCM,
    words=st.lists(TIMINGS, max_size=5).map(tuple),
    mel=MEL,
)
FAILURES = st.builds(
    Failure, context=NAMES, sentence=COUNTS, code=NAMES, message=st.text(max_size=80), retryable=st.booleans()
)


@given(JOBS)
def test_a_job_survives_the_stream(job: Job) -> None:
    """What is read is what was written."""
    assert decode_job(encode(job)) == job


@given(st.one_of(CHUNKS, FAILURES))
def test_a_result_survives_the_stream(result: Result) -> None:
    """Chunks and failures are told apart and read as they were written."""
    assert decode_result(encode(result)) == result


JOB = Job("r", "c", 0, UUID(int=1), UUID(int=2), 1, 0, "Hello.")
CHUNK = Chunk("c", 0, 0, True, b"\0\0", 1, (Timing(0, 5, 80),), bytes(MEL_FRAME_BYTES))


@pytest.mark.parametrize("field", sorted(encode(JOB)))
def test_a_job_without_one_of_its_fields_is_refused(field: bytes) -> None:
    """No field has a default: a missing one is an error, not a guess."""
    entry = encode(JOB)
    del entry[field]
    with pytest.raises(MalformedEntry):
        decode_job(entry)


@pytest.mark.parametrize("field", sorted(encode(CHUNK)))
def test_a_chunk_without_one_of_its_fields_is_refused(field: bytes) -> None:
    """No words and no mel frames are said, not left out."""
    entry = encode(CHUNK)
    del entry[field]
    with pytest.raises(MalformedEntry):
        decode_result(entry)


@given(st.dictionaries(st.sampled_from(sorted(encode(CHUNK))), st.binary(max_size=40)))
def test_any_bytes_are_read_as_a_result_or_refused(changes: dict[bytes, bytes]) -> None:
    """Garbage in any field of a chunk either still reads as one or raises MalformedEntry, nothing else."""
    try:
        decode_result(encode(CHUNK) | changes)
    except MalformedEntry:
        return


@given(st.dictionaries(st.sampled_from(sorted(encode(JOB))), st.binary(max_size=40)))
def test_any_bytes_are_read_or_refused(changes: dict[bytes, bytes]) -> None:
    """Garbage in any field either still reads as a job or raises MalformedEntry, nothing else."""
    try:
        decode_job(encode(JOB) | changes)
    except MalformedEntry:
        return


@pytest.mark.parametrize("version", [b"1", b"3"])
def test_another_version_is_refused(version: bytes) -> None:
    """An entry of yesterday's or tomorrow's format is not half understood."""
    with pytest.raises(MalformedEntry):
        decode_job(encode(JOB) | {b"v": version})


def test_text_beyond_the_bound_is_refused() -> None:
    """A job's text has a bound in bytes."""
    with pytest.raises(MalformedEntry):
        decode_job(encode(JOB) | {b"text": b"a" * (MAX_TEXT_BYTES + 1)})


def test_half_a_sample_is_refused() -> None:
    """A chunk holds whole samples."""
    with pytest.raises(MalformedEntry):
        decode_result(encode(Chunk("c", 0, 0, True, b"\0\0")) | {b"pcm": b"\0\0\0"})


@pytest.mark.parametrize("size", [1, MEL_FRAME_BYTES - 1, MAX_MEL_BYTES // MEL_FRAME_BYTES * MEL_FRAME_BYTES + 160])
def test_half_a_frame_or_too_many_are_refused(size: int) -> None:
    """A chunk holds whole mel frames, and no more than the bound."""
    with pytest.raises(MalformedEntry):
        decode_result(encode(CHUNK) | {b"mel": bytes(size)})


def test_a_word_that_ends_before_it_starts_is_refused() -> None:
    """Whoever reads timings may count on their order."""
    with pytest.raises(MalformedEntry):
        decode_result(encode(replace(CHUNK, words=(Timing(0, 81, 80),))))
