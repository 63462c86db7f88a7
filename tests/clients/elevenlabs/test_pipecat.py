"""Pipecat's two ElevenLabs services in a pipeline: contexts on a socket with a clock of words, and HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from _frame import LONG_TEXT, TEXT, UNKNOWN_VOICE, Stack, check_speech, read_pcm
from pipecat.frames.frames import (
    EndFrame,
    ErrorFrame,
    Frame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TTSAudioRawFrame,
    TTSSpeakFrame,
    TTSStoppedFrame,
    TTSTextFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.elevenlabs.tts import ElevenLabsHttpTTSService, ElevenLabsTTSService
from pipecat.workers.runner import WorkerRunner

RATE = 24_000
WITHIN_S = 30.0
KINDS = ("socket", "http")


class Ear(FrameProcessor):
    """Keeps what comes down to it."""

    def __init__(self) -> None:
        super().__init__()
        self.frames: asyncio.Queue[Frame] = asyncio.Queue()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        await self.frames.put(frame)
        await self.push_frame(frame, direction)


@dataclass
class Agent:
    """A pipeline of the service alone."""

    worker: PipelineWorker
    ear: Ear
    errors: list[ErrorFrame] = field(default_factory=list)
    words: list[TTSTextFrame] = field(default_factory=list)

    async def say(self, text: str) -> bytes:
        """Its samples, to the end of the speech."""
        await self.worker.queue_frame(TTSSpeakFrame(text))
        return await self.hear(TTSStoppedFrame)

    async def answer(self, tokens: list[str]) -> bytes:
        """A language model's answer, token by token."""
        frames = [LLMFullResponseStartFrame(), *map(LLMTextFrame, tokens), LLMFullResponseEndFrame()]
        await self.worker.queue_frames(frames)
        return await self.hear(LLMFullResponseEndFrame)

    async def hear(self, until: type[Frame]) -> bytes:
        """The samples that come before the next frame of this kind."""
        heard = b""
        async with asyncio.timeout(WITHIN_S):
            while not isinstance(frame := await self.ear.frames.get(), until):
                if isinstance(frame, TTSAudioRawFrame):
                    assert (frame.sample_rate, frame.num_channels) == (RATE, 1)
                    heard += frame.audio
                if isinstance(frame, TTSTextFrame):
                    self.words.append(frame)
        return heard

    async def wait_for_error(self) -> str:
        async with asyncio.timeout(WITHIN_S):
            while not self.errors:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        return self.errors[0].error


@asynccontextmanager
async def run_agent(
    kind: str, stack: Stack, *, voice: str | None = None, key: str | None = None, **settings: Any
) -> AsyncIterator[Agent]:
    """An agent that speaks with this voice."""
    async with aiohttp.ClientSession() as session:
        given: dict[str, Any] = {"voice": voice or stack.voices["low"], **settings}
        key = key or stack.key
        if kind == "socket":
            service: Any = ElevenLabsTTSService(
                api_key=key, url=f"{stack.ws}/elevenlabs", settings=ElevenLabsTTSService.Settings(**given)
            )
        else:
            service = ElevenLabsHttpTTSService(
                api_key=key,
                base_url=f"{stack.http}/elevenlabs",
                aiohttp_session=session,
                settings=ElevenLabsHttpTTSService.Settings(**given),
            )
        ear = Ear()
        params = PipelineParams(audio_out_sample_rate=RATE)
        worker = PipelineWorker(Pipeline([service, ear]), params=params, cancel_on_idle_timeout=False)
        agent = Agent(worker, ear)

        @worker.event_handler("on_pipeline_error")
        async def note(_worker: PipelineWorker, frame: ErrorFrame) -> None:
            agent.errors.append(frame)

        runner = WorkerRunner(handle_sigint=False)
        await runner.add_workers(worker)
        running = asyncio.create_task(runner.run())
        try:
            yield agent
        finally:
            await worker.queue_frame(EndFrame())
            async with asyncio.timeout(WITHIN_S):
                await running


@pytest.mark.parametrize("kind", KINDS)
async def test_a_text_is_spoken_with_its_words(kind: str, stack: Stack) -> None:
    """Twice; every word comes once, the last one too, at times that rise."""
    async with run_agent(kind, stack) as agent:
        for _ in range(2):
            agent.words.clear()
            pcm = await agent.say(TEXT)
            check_speech(read_pcm(pcm), RATE, seconds=(1.5, 8))
            assert [word.text for word in agent.words] == TEXT.split()
            times = [word.pts for word in agent.words]
            assert times == sorted(times)
            assert (times[-1] - times[0]) / 1e9 < len(pcm) / 2 / RATE
    assert agent.errors == []


@pytest.mark.parametrize("kind", KINDS)
async def test_the_answer_of_a_language_model_is_spoken(kind: str, stack: Stack) -> None:
    """Pipecat cuts it into sentences without the space between; none are glued together."""
    async with run_agent(kind, stack) as agent:
        tokens = ["Good", " morning", ".", " This", " is a short", " test.", " Thank you", " for calling", "."]
        pcm = await agent.answer(tokens)
        check_speech(read_pcm(pcm), RATE, seconds=(1.5, 10))
        spoken = "".join(tokens).split()
        assert [word.text for word in agent.words] == spoken
    assert agent.errors == []


async def test_times_stay_with_the_audio_over_a_minute(stack: Stack) -> None:
    """The clock that Pipecat keeps of the words has not drifted from the samples (FM8)."""
    sentence = "The weather is fine today, and tomorrow it will be better. "
    async with run_agent("socket", stack) as agent:
        # The worker speaks half a minute ahead of whoever listens, so this takes as long as the rest.
        pcm = await agent.say(sentence * 8)
        times = [word.pts / 1e9 for word in agent.words]
    assert [word.text for word in agent.words] == (sentence * 8).split()
    seconds = len(pcm) / 2 / RATE
    assert seconds > 20
    # The first and the last sentence are the same, and so are the pauses between their words.
    count = len(sentence.split())
    first, last = times[:count], times[-count:]
    assert last[-1] - last[0] == pytest.approx(first[-1] - first[0], abs=0.15)
    assert last[0] - first[0] == pytest.approx(seconds * 7 / 8, rel=0.02)


async def test_twenty_interruptions_leave_the_next_turn_alone(stack: Stack) -> None:
    """In the middle of what is being spoken; what is said next is heard as if nothing had been, on the same socket."""
    async with run_agent("socket", stack) as agent:
        alone = await agent.say(TEXT)
        for number in range(20):
            if number % 2:
                await agent.worker.queue_frames([LLMFullResponseStartFrame(), LLMTextFrame(LONG_TEXT)])
            else:
                await agent.worker.queue_frame(TTSSpeakFrame(LONG_TEXT))
            await agent.hear(TTSAudioRawFrame)
            await agent.worker.queue_frame(InterruptionFrame())
            await agent.hear(InterruptionFrame)
        assert await agent.say(TEXT) == alone
    assert agent.errors == []


async def test_an_interruption_of_http_leaves_the_next_turn_alone(stack: Stack) -> None:
    """The request is given up."""
    async with run_agent("http", stack) as agent:
        alone = await agent.say(TEXT)
        for _ in range(5):
            await agent.worker.queue_frame(TTSSpeakFrame(LONG_TEXT))
            await agent.hear(TTSAudioRawFrame)
            await agent.worker.queue_frame(InterruptionFrame())
            await agent.hear(InterruptionFrame)
        assert await agent.say(TEXT) == alone
    assert agent.errors == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("case", "told"), [("key", {"socket": "401", "http": "API key"}), ("voice", {"socket": "404", "http": "voice"})]
)
async def test_keys_and_voices_that_open_nothing_are_errors_of_the_pipeline(
    kind: str, case: str, told: dict[str, str], stack: Stack
) -> None:
    """Of the socket before anything is said."""
    more = {"key": stack.wrong_key} if case == "key" else {"voice": UNKNOWN_VOICE}
    async with run_agent(kind, stack, **more) as agent:
        if kind == "http":
            await agent.worker.queue_frame(TTSSpeakFrame(TEXT))
        assert told[kind] in await agent.wait_for_error()


async def test_another_tenants_voice_is_an_unknown_one(stack: Stack) -> None:
    """In the same words."""
    async with run_agent("socket", stack, voice=stack.foreign_voice) as agent:
        assert "404" in await agent.wait_for_error()


async def test_a_text_without_a_sound_ends_its_turn_and_nothing_else(stack: Stack) -> None:
    """This service reads no errors, but misses the audio; the socket stays, and the next text is spoken."""
    async with run_agent("socket", stack) as agent:
        assert await agent.say("😀") == b""
        check_speech(read_pcm(await agent.say("Thank you for calling.")), RATE, seconds=(0.3, 5))
    (error,) = agent.errors
    assert "completed with no audio" in error.error


async def test_a_text_that_is_too_long_ends_its_turn_and_nothing_else(stack: Stack) -> None:
    """An error of the pipeline; the next text is spoken, on the same socket."""
    async with run_agent("socket", stack) as agent:
        assert await agent.say("word " * 2500) == b""
        check_speech(read_pcm(await agent.say("Thank you for calling.")), RATE, seconds=(0.3, 5))
    (error,) = agent.errors
    assert "completed with no audio" in error.error


async def test_over_http_a_text_without_a_sound_is_an_error(stack: Stack) -> None:
    """Said upstream, and the agent lives."""
    async with run_agent("http", stack) as agent:
        assert await agent.say("😀") == b""
        assert "nothing that can be spoken" in await agent.wait_for_error()
        assert await agent.say("Thank you for calling.")


async def test_settings_may_be_given(stack: Stack) -> None:
    """They come with each context's first message; of them the speed is heard."""
    async with run_agent("socket", stack) as agent:
        plain = await agent.say(TEXT)
    async with run_agent("socket", stack, stability=0.3, similarity_boost=0.8, speed=1.2) as agent:
        for _ in range(2):
            assert len(await agent.say(TEXT)) / len(plain) == pytest.approx(1 / 1.2, rel=0.03)
    assert agent.errors == []
