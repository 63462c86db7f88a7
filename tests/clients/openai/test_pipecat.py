"""Pipecat's OpenAITTSService: pcm at 24 kHz, and of all names for a voice only those that OpenAI has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from _frame import LONG_TEXT, TEXT, Stack, check_speech, read_pcm
from pipecat.frames.frames import (
    EndFrame,
    ErrorFrame,
    Frame,
    InterruptionFrame,
    TTSAudioRawFrame,
    TTSSpeakFrame,
    TTSStoppedFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.openai.tts import OpenAITTSService
from pipecat.workers.runner import WorkerRunner

RATE = 24_000
WITHIN_S = 20.0


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

    async def say(self, text: str) -> bytes:
        """Its samples, to the end of the speech."""
        await self.worker.queue_frame(TTSSpeakFrame(text))
        return await self.hear(TTSStoppedFrame)

    async def hear(self, until: type[Frame]) -> bytes:
        """The samples that come before the next frame of this kind."""
        heard = b""
        async with asyncio.timeout(WITHIN_S):
            while not isinstance(frame := await self.ear.frames.get(), until):
                if isinstance(frame, TTSAudioRawFrame):
                    assert (frame.sample_rate, frame.num_channels) == (RATE, 1)
                    heard += frame.audio
        return heard


@asynccontextmanager
async def run_agent(stack: Stack, voice: str, key: str) -> AsyncIterator[Agent]:
    """An agent that speaks with this voice."""
    service = OpenAITTSService(
        api_key=key,
        base_url=f"{stack.http}/openai/v1",
        settings=OpenAITTSService.Settings(voice=voice),
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


async def test_a_cloned_voice_speaks_as_alloy(stack: Stack) -> None:
    """Two texts, one after the other, and nothing is complained of."""
    async with run_agent(stack, stack.alias, stack.key) as agent:
        for _ in range(2):
            check_speech(read_pcm(await agent.say(TEXT)), RATE, seconds=(1.5, 8))
    assert agent.errors == []


async def test_after_an_interruption_comes_only_what_is_new(stack: Stack) -> None:
    """The old speech ends in its middle; what is said next is heard as if nothing had been."""
    async with run_agent(stack, stack.alias, stack.key) as agent:
        alone = await agent.say(TEXT)
        for _ in range(5):
            await agent.worker.queue_frame(TTSSpeakFrame(LONG_TEXT))
            await agent.hear(TTSAudioRawFrame)
            await agent.worker.queue_frame(InterruptionFrame())
            await agent.hear(InterruptionFrame)
        assert await agent.say(TEXT) == alone
    assert agent.errors == []


@pytest.mark.parametrize("case", ["no sound", "wrong key", "no such alias"])
async def test_what_goes_wrong_is_an_error_of_the_pipeline(case: str, stack: Stack) -> None:
    """A text without a sound, a wrong key, a name that is not set: said upstream, and the agent lives."""
    voice = "shimmer" if case == "no such alias" else stack.alias
    key = stack.wrong_key if case == "wrong key" else stack.key
    async with run_agent(stack, voice, key) as agent:
        await agent.worker.queue_frame(TTSSpeakFrame("😀" if case == "no sound" else TEXT))
        async with asyncio.timeout(WITHIN_S):
            while not agent.errors:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    wanted = {"no sound": "nothing that can be spoken", "wrong key": "API key", "no such alias": "PUT /v1/aliases"}
    assert wanted[case] in agent.errors[0].error
