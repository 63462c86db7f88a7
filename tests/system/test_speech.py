"""The running whole: enrolled, spoken, heard, cancelled, deleted, kept apart."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from storage.states import VoiceState
from tests.conftest import DEADLINE_S, wait_until
from tests.system.conftest import LONG_SENTENCE, SAMPLES, SPEECH, MakeSpeaker, hear
from timbrelay.client import Chunk, RelayError, Sentence

TEXT = "The quick brown fox is here. It jumps over the lazy dog. And then it goes home."


async def test_two_tenants_at_once_hear_what_each_hears_alone(
    start_stack: Callable[..., Any], make_speaker: MakeSpeaker
) -> None:
    """Six contexts of two tenants in two voices at once: every one is, byte for byte, its solo run."""
    stack = start_stack(only=SPEECH)
    low, high = await make_speaker(stack, "acme", "low"), await make_speaker(stack, "other", "high")
    alone = {speaker.voice: (await speaker.speak(TEXT)).pcm for speaker in (low, high)}
    assert alone[low.voice] != alone[high.voice]
    together = await asyncio.gather(*(speaker.speak(TEXT) for speaker in (low, high) * 3))
    for speaker, heard in zip((low, high) * 3, together, strict=True):
        heard.check_order()
        assert heard.pcm == alone[speaker.voice]


async def test_another_tenants_voice_is_not_there(start_stack: Callable[..., Any], make_speaker: MakeSpeaker) -> None:
    """It cannot be seen, used or deleted, and goes on speaking for its own tenant."""
    stack = start_stack(only=SPEECH)
    mine, stranger = await make_speaker(stack, "acme", "low"), await make_speaker(stack, "other", "high")
    assert mine.voice not in {voice.id for voice in await stranger.client.voices()}
    for attempt in (stranger.client.voice(mine.voice), stranger.client.delete_voice(mine.voice)):
        with pytest.raises(RelayError) as caught:
            await attempt
        assert caught.value.code == "unknown_voice"
    async with stranger.client.connect() as connection:
        with pytest.raises(RelayError, match="unknown_voice"):
            await connection.open(mine.voice)
    assert (await mine.speak("Still here.")).pcm


async def test_text_in_pieces_is_spoken_before_it_is_complete(
    start_stack: Callable[..., Any], make_speaker: MakeSpeaker
) -> None:
    """The first clause is heard while the client is still writing."""
    speaker = await make_speaker(start_stack(only=SPEECH), "acme", "low")
    async with speaker.client.connect() as connection:
        context = await connection.open(speaker.voice)
        for piece in ("Well, my ", "dear fri", "end, I "):
            await context.send(piece)
        seen: list[object] = []
        async for event in context:
            seen.append(event)
            if isinstance(event, Chunk) and event.last:
                break
        assert isinstance(seen[0], Sentence)
        await context.send("had more to say.")
        await context.end()
        rest = await hear(context)
    assert rest.chunks[-1].last


async def test_after_cancelled_no_frame_follows_and_the_voice_speaks_on(
    start_stack: Callable[..., Any], make_speaker: MakeSpeaker
) -> None:
    """Twenty interruptions in mid-sentence leave the connection and the worker as usable as before."""
    stack = start_stack(only=SPEECH)
    speaker = await make_speaker(stack, "acme", "low")
    reference = (await speaker.speak("All is well.")).pcm
    headers = {"Authorization": f"Bearer {speaker.key}"}
    async with connect(stack.relay_url.replace("http", "ws") + "/v1/stream", additional_headers=headers) as socket:
        for number in range(20):
            context = {"context": f"c{number}"}
            for asked in ({"type": "open", "voice": speaker.voice}, {"type": "text", "text": LONG_SENTENCE + ". "}):
                await socket.send(json.dumps({**asked, **context}))
            while not isinstance(await socket.recv(), bytes):
                pass
            await socket.send(json.dumps({"type": "cancel", **context}))
            while isinstance(message := await socket.recv(), bytes) or json.loads(message)["type"] != "cancelled":
                pass
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(socket.recv(), 0.5)
    assert (await speaker.speak("All is well.")).pcm == reference


async def test_a_deleted_voice_stops_in_mid_text_and_for_good(
    start_stack: Callable[..., Any], make_speaker: MakeSpeaker
) -> None:
    """Its listener is told why, no other voice takes over, and no worker remembers it."""
    speaker = await make_speaker(start_stack(), "acme", "low")
    async with speaker.client.connect() as connection:
        context = await connection.open(speaker.voice)
        await context.send(f"{LONG_SENTENCE}. " * 100)
        with pytest.raises(RelayError) as caught:
            async for event in context:
                if isinstance(event, Chunk) and (event.sentence, event.number) == (1, 0):
                    await speaker.client.delete_voice(speaker.voice)
        assert caught.value.code == "voice_unavailable"
        with pytest.raises(RelayError, match="unknown_voice"):
            await connection.open(speaker.voice)
    assert await speaker.client.voices() == []


async def test_a_text_without_a_sound_is_an_error_with_the_fix(
    start_stack: Callable[..., Any], make_speaker: MakeSpeaker
) -> None:
    """Nothing to say ends the context with its reason, never in silence."""
    speaker = await make_speaker(start_stack(only=SPEECH), "acme", "low")
    for text in ("", "   ", "🎉🎉", "你好"):
        with pytest.raises(RelayError) as caught:
            await speaker.speak(text)
        assert caught.value.code == "nothing_to_say", text


async def test_what_is_no_reference_recording_says_why(
    start_stack: Callable[..., Any], make_speaker: MakeSpeaker
) -> None:
    """Silence, a picture and half a second each fail with their own reason, and keep nothing."""
    stack = start_stack()
    speaker = await make_speaker(stack, "acme", "low")
    sample = SAMPLES["low"].read_bytes()
    consent = await speaker.client.create_consent("Nobody", "The recording is synthetic.")
    cases = [
        (sample[:44] + bytes(len(sample) - 44), "recording_silent"),
        (b"\x89PNG\r\n\x1a\n" + bytes(4000), "recording_not_audio"),
        (_shorten(sample, 0.5), "recording_too_short"),
    ]
    for upload, code in cases:
        pending = await speaker.client.enroll("bad", consent.id, upload)
        voice = await speaker.client.voice(pending.id, wait_s=20)
        assert (voice.state, (voice.error or {})["code"]) == (VoiceState.FAILED, code)


def _shorten(wav: bytes, seconds: float) -> bytes:
    size = int(seconds * 24_000) * 2
    return wav[:40] + size.to_bytes(4, "little") + wav[44 : 44 + size]


async def test_nothing_at_rest_holds_the_recording_or_the_embedding(
    start_stack: Callable[..., Any], make_speaker: MakeSpeaker, servers: Any, tmp_path: Path
) -> None:
    """Postgres' files, Redis' dump and the logs hold neither, though the voice was enrolled and spoken with."""
    from worker.enrolment.recording import read_recording, to_flac
    from worker.sv2tts.bundle import Bundle
    from worker.sv2tts.encoder import SpeakerEncoder

    stack = start_stack()
    speaker = await make_speaker(stack, "acme", "low")
    assert (await speaker.speak(TEXT)).pcm
    upload = SAMPLES["low"].read_bytes()
    recording = read_recording(upload, max_bytes=10 * 1024 * 1024).samples
    embedding = SpeakerEncoder(Bundle.load(Path("bundles/base"))).embed(recording).astype("<f4").tobytes()
    secrets = [upload[20_000:20_032], to_flac(recording)[20_000:20_032], embedding[:32], speaker.key.encode()]
    await asyncio.to_thread(_flush, stack, servers)
    home = servers.postgres.folder.parent
    files = [*home.rglob("*"), stack.log]
    contents = [file.read_bytes() for file in files if file.is_file()]
    assert any(b"enrolment" in content for content in contents)
    for content in contents:
        for secret in secrets:
            assert secret not in content
            assert secret.hex().encode() not in content
    assert TEXT[:20].encode() not in stack.log.read_bytes()


def _flush(stack: Any, servers: Any) -> None:
    import psycopg
    import redis

    with psycopg.connect(servers.database_owner_url, autocommit=True) as connection:
        connection.execute("CHECKPOINT")
    with redis.Redis.from_url(servers.redis_url) as client:
        client.save()


async def test_probes_and_figures_tell_what_happened(
    start_stack: Callable[..., Any], make_speaker: MakeSpeaker
) -> None:
    """Alive, ready, and counted; readiness goes with the last worker."""
    stack = start_stack(only=SPEECH)
    speaker = await make_speaker(stack, "acme", "low")
    await speaker.speak(TEXT)
    relay, worker = stack.metrics_urls["relay"], stack.metrics_urls["worker"]
    async with httpx2.AsyncClient() as client:
        assert (await client.get(f"{relay}/healthz")).status_code == 200
        assert (await client.get(f"{relay}/readyz")).json()["checks"].keys() == {
            "postgres",
            "redis",
            "model",
            "door",
        }
        figures = (await client.get(f"{relay}/metrics")).text + (await client.get(f"{worker}/metrics")).text
        for line in (
            'timbrelay_time_to_first_audio_seconds_bucket{le="0.2"}',
            "timbrelay_time_to_first_audio_seconds_count 1.0",
            "timbrelay_sentences_spoken_total 3.0",
            "timbrelay_jobs_submitted_total 3.0",
            'timbrelay_worker_jobs_total{outcome="spoken"} 3.0',
            "timbrelay_worker_real_time_factor_count 3.0",
            "timbrelay_queue_lag_jobs 0.0",
        ):
            assert line in figures, line
        assert speaker.voice not in figures
        stack.kill("worker")
        await asyncio.to_thread(wait_until, lambda: httpx2.get(f"{relay}/readyz").status_code == 503)
        assert (await client.get(f"{relay}/healthz")).status_code == 200


async def test_a_client_that_stops_reading_is_let_go(
    start_stack: Callable[..., Any], make_speaker: MakeSpeaker
) -> None:
    """It is closed within the send timeout, its work stops, and others are served meanwhile."""
    # Nobody is sent more than this ahead of what he hears, and the buffers of a kernel hold more than a minute of it.
    stack = start_stack(only=SPEECH, send_timeout_s=1.0, run_ahead_ms=600_000)
    speaker = await make_speaker(stack, "acme", "low")
    headers = {"Authorization": f"Bearer {speaker.key}"}
    url = stack.relay_url.replace("http", "ws") + "/v1/stream"
    # Tiny buffers, so that the relay notices soon.
    async with connect(url, additional_headers=headers, max_queue=1, open_timeout=10) as socket:
        socket.transport.pause_reading()
        for message in (
            {"type": "open", "context": "c", "voice": speaker.voice},
            *({"type": "text", "context": "c", "text": f"{LONG_SENTENCE}. " * 100} for _ in range(10)),
        ):
            await socket.send(json.dumps(message))
        relay = stack.metrics_urls["relay"]
        gone = "timbrelay_connections 0.0"
        await asyncio.to_thread(wait_until, lambda: gone in httpx2.get(f"{relay}/metrics").text, 3 * DEADLINE_S)
        assert (await speaker.speak("I am still served.")).pcm
        socket.transport.resume_reading()
        with pytest.raises(ConnectionClosed) as caught:
            while True:
                await socket.recv()
    assert caught.value.rcvd is None or caught.value.rcvd.code == 1008


def loudness(pcm: bytes) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Root mean square of each 100 ms, of full scale."""
    samples = np.frombuffer(pcm, "<i2").astype(np.float64) / 32768
    usable = samples[: len(samples) // 2400 * 2400].reshape(-1, 2400)
    return np.asarray(np.sqrt((usable**2).mean(axis=1)))


async def test_what_is_heard_is_speech(start_stack: Callable[..., Any], make_speaker: MakeSpeaker) -> None:
    """As long as its text, neither silent nor clipped, without long gaps, and never the reference recording itself."""
    speaker = await make_speaker(start_stack(), "acme", "low")
    for text, words in ((TEXT, 17), ("Yes.", 1), ("Is that true?", 3)):
        heard = await speaker.speak(text)
        heard.check_order()
        seconds = len(heard.pcm) / 2 / 24_000
        assert 0.15 * words < seconds < 0.9 * words + 0.6
        level = loudness(heard.pcm)
        assert level.max() > 0.02
        samples = np.frombuffer(heard.pcm, "<i2")
        assert np.mean(np.abs(samples.astype(np.int32)) >= 32767) < 1e-3
        quiet = "".join("." if value < 0.003 else "#" for value in level)
        assert "." * 7 not in quiet
