"""storage.streams.wire."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import MalformedEntry
from storage.streams.wire import MAX_TEXT_BYTES, Chunk, Failure, Job, Result, decode_job, decode_result, encode

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
)
PCM = st.binary(max_size=1920).map(lambda raw: raw[: len(raw) // 2 * 2])
CHUNKS = st.builds(Chunk, context=NAMES, sentence=COUNTS, number=COUNTS, last=st.booleans(), pcm=PCM)
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


@pytest.mark.parametrize("field", sorted(encode(JOB)))
def test_a_job_without_one_of_its_fields_is_refused(field: bytes) -> None:
    """No field has a default: a missing one is an error, not a guess."""
    entry = encode(JOB)
    del entry[field]
    with pytest.raises(MalformedEntry):
        decode_job(entry)


@given(st.dictionaries(st.sampled_from(sorted(encode(JOB))), st.binary(max_size=40)))
def test_any_bytes_are_read_or_refused(changes: dict[bytes, bytes]) -> None:
    """Garbage in any field either still reads as a job or raises MalformedEntry, nothing else."""
    try:
        decode_job(encode(JOB) | changes)
    except MalformedEntry:
        return


def test_a_version_of_tomorrow_is_refused() -> None:
    """An entry of another format version is not half understood."""
    with pytest.raises(MalformedEntry):
        decode_job(encode(JOB) | {b"v": b"2"})


def test_text_beyond_the_bound_is_refused() -> None:
    """A job's text has a bound in bytes."""
    with pytest.raises(MalformedEntry):
        decode_job(encode(JOB) | {b"text": b"a" * (MAX_TEXT_BYTES + 1)})


def test_half_a_sample_is_refused() -> None:
    """A chunk holds whole samples."""
    with pytest.raises(MalformedEntry):
        decode_result(encode(Chunk("c", 0, 0, True, b"\0\0")) | {b"pcm": b"\0\0\0"})
