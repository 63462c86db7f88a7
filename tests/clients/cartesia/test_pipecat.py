"""Pipecat's CartesiaTTSService over the WebSocket, and CartesiaHttpTTSService."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from _frame import LONG_TEXT, TEXT, UNKNOWN_VOICE, Stack, check_speech, check_voice, read_pcm
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
from pipecat.services.cartesia.tts import CartesiaHttpTTSService, CartesiaTTSService
from pipecat.services.tts_service import TextAggregationMode
from pipecat.workers.runner import WorkerRunner

RATE = 24_000
WITHIN_S = 25.0
SECONDS = (1.5, 8.0)


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

    service: Any
    worker: PipelineWorker
    ear: Ear
    errors: list[ErrorFrame] = field(default_factory=list)
    words: list[str] = field(default_factory=list)

    async def say(self, text: str) -> bytes:
        """Its samples, to the end of the speech."""
        await self.worker.queue_frame(TTSSpeakFrame(text))
        return await self.hear(TTSStoppedFrame)

    async def answer(self, tokens: list[str]) -> bytes:
        """The same for a language model's tokens."""
        frames = [LLMFullResponseStartFrame(), *map(LLMTextFrame, tokens), LLMFullResponseEndFrame()]
        await self.worker.queue_frames(frames)
        return await self.hear(TTSStoppedFrame)

    async def hear(self, until: type[Frame]) -> bytes:
        """The samples that come before the next frame of this kind."""
        heard = b""
        async with asyncio.timeout(WITHIN_S):
            while not isinstance(frame := await self.ear.frames.get(), until):
                if isinstance(frame, TTSAudioRawFrame):
                    assert (frame.sample_rate, frame.num_channels) == (RATE, 1)
                    heard += frame.audio
                elif isinstance(frame, TTSTextFrame):
                    self.words.append(frame.text)
        return heard

    async def fail(self) -> str:
        """The next error."""
        async with asyncio.timeout(WITHIN_S):
            while not self.errors:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        return self.errors.pop(0).error


def make_service(stack: Stack, voice: str, key: str = "", **more: Any) -> CartesiaTTSService:
    """The WebSocket's service, told another URL."""
    settings = CartesiaTTSService.Settings(voice=voice)
    url = f"{stack.ws}/cartesia/tts/websocket"
    return CartesiaTTSService(api_key=key or stack.key, url=url, settings=settings, **more)


def make_http_service(stack: Stack, voice: str, key: str = "") -> CartesiaHttpTTSService:
    """The other one."""
    settings = CartesiaHttpTTSService.Settings(voice=voice)
    return CartesiaHttpTTSService(api_key=key or stack.key, base_url=f"{stack.http}/cartesia", settings=settings)


@asynccontextmanager
async def run_agent(service: Any) -> AsyncIterator[Agent]:
    """An agent that speaks with this service."""
    ear = Ear()
    params = PipelineParams(audio_out_sample_rate=RATE)
    worker = PipelineWorker(Pipeline([service, ear]), params=params, cancel_on_idle_timeout=False)
    agent = Agent(service, worker, ear)

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


@pytest.mark.parametrize("make", [make_service, make_http_service])
async def test_a_text_is_spoken(stack: Stack, make: Any) -> None:
    """Twice, the same, and nothing is complained of."""
    async with run_agent(make(stack, stack.voices["high"])) as agent:
        first, second = [await agent.say(TEXT) for _ in range(2)]
    check_speech(read_pcm(first), RATE, seconds=SECONDS)
    check_voice(read_pcm(first), RATE, "high")
    assert first == second
    assert agent.errors == []


@pytest.mark.parametrize("mode", [TextAggregationMode.SENTENCE, TextAggregationMode.TOKEN])
async def test_a_models_answer_is_spoken_while_it_comes(stack: Stack, mode: TextAggregationMode) -> None:
    """In sentences or in tokens; its words come back at their times."""
    tokens = [TEXT[start : start + 4] for start in range(0, len(TEXT), 4)]
    async with run_agent(make_service(stack, stack.alias, text_aggregation_mode=mode)) as agent:
        check_speech(read_pcm(await agent.answer(tokens)), RATE, seconds=SECONDS)
    assert " ".join(agent.words).split() == TEXT.split()
    assert agent.errors == []


async def test_after_twenty_interruptions_comes_only_what_is_new(stack: Stack) -> None:
    """Each ends in the middle of a sentence; what is said next is heard as if nothing had been."""
    async with run_agent(make_service(stack, stack.alias)) as agent:
        alone = await agent.say(TEXT)
        for _ in range(20):
            await agent.worker.queue_frame(TTSSpeakFrame(LONG_TEXT))
            await agent.hear(TTSAudioRawFrame)
            await agent.worker.queue_frame(InterruptionFrame())
            await agent.hear(InterruptionFrame)
        assert await agent.say(TEXT) == alone
    assert agent.errors == []


async def test_another_voice_in_the_middle_of_a_conversation(stack: Stack) -> None:
    """The service opens another context for it."""
    async with run_agent(make_service(stack, stack.voices["low"])) as agent:
        check_voice(read_pcm(await agent.say(TEXT)), RATE, "low")
        await agent.service._update_settings(CartesiaTTSService.Settings(voice=stack.voices["high"]))
        check_voice(read_pcm(await agent.say(TEXT)), RATE, "high")
    assert agent.errors == []


async def test_after_a_drop_the_service_connects_again(stack: Stack) -> None:
    """By itself."""
    async with run_agent(make_service(stack, stack.alias)) as agent:
        alone = await agent.say(TEXT)
        old = agent.service._websocket
        old.transport.abort()
        async with asyncio.timeout(WITHIN_S):
            while agent.service._websocket in (None, old):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert await agent.say(TEXT) == alone


@pytest.mark.parametrize(
    ("case", "says"),
    [("no sound", "transcript_empty"), ("unknown", "voice_not_found"), ("foreign", "voice_not_found")],
)
@pytest.mark.parametrize("make", [make_service, make_http_service])
async def test_what_goes_wrong_is_an_error_of_the_pipeline(stack: Stack, case: str, says: str, make: Any) -> None:
    """Once, with its reason."""
    voice = {"unknown": UNKNOWN_VOICE, "foreign": stack.foreign_voice}.get(case, stack.alias)
    async with run_agent(make(stack, voice)) as agent:
        await agent.worker.queue_frame(TTSSpeakFrame("🎉 😀" if case == "no sound" else TEXT))
        assert says in await agent.fail()
    # Pipecat adds one of its own when a speech ends unheard.
    assert [error.error for error in agent.errors if not error.error.endswith("completed with no audio")] == []


@pytest.mark.parametrize("make", [make_service, make_http_service])
async def test_a_wrong_key_is_an_error_of_the_pipeline(stack: Stack, make: Any) -> None:
    """With the status."""
    async with run_agent(make(stack, stack.alias, stack.wrong_key)) as agent:
        if make is make_http_service:
            await agent.worker.queue_frame(TTSSpeakFrame(TEXT))
        assert "401" in await agent.fail()
