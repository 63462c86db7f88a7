"""Signals: the first ends the command in order, the next ones make it hurry."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from timbrelay.interruption import Interruption
from timbrelay.watching import run_watched


@pytest.fixture
def interruption() -> Iterator[Interruption]:
    """Signals taken over, and given back at the end."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    made = Interruption()
    made.install()
    yield made
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_interrupts(interruption: Interruption, number: signal.Signals) -> None:
    """The first signal of each kind interrupts what runs."""
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), number)
    assert not interruption.hurry


def test_the_second_signal_does_not_interrupt_the_cleaning_up(interruption: Interruption) -> None:
    """While things are being ended, further signals only make that hurry."""
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGTERM)
    assert interruption.hurry


def test_a_coroutine_cleans_up_before_the_interruption_goes_on(interruption: Interruption) -> None:
    """A signal cancels the coroutine that runs, which can clean up, and then interrupts the command."""
    cleaned = []

    async def work() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)

    with pytest.raises(KeyboardInterrupt):
        interruption.run(work())
    assert cleaned == [True]


def test_a_coroutines_result_and_error_are_its_own(interruption: Interruption) -> None:
    """Without a signal the coroutine's result or error comes through."""

    async def give() -> int:
        return 42

    async def fail() -> None:
        raise ValueError("mine")

    assert interruption.run(give()) == 42
    with pytest.raises(ValueError, match="mine"):
        interruption.run(fail())


async def test_work_ends_when_its_stack_is_lost() -> None:
    """When the stack cannot be kept alive the work is cancelled and the reason is raised."""
    cancelled = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    checks = iter([None, RuntimeError("lost")])

    def check() -> None:
        if error := next(checks):
            raise error

    with pytest.raises(RuntimeError, match="lost"):
        await run_watched(check, work())
    assert cancelled == [True]


async def test_work_that_is_done_gives_its_result() -> None:
    """The result of the work is given as soon as it is there."""

    async def work() -> int:
        return 42

    assert await run_watched(lambda: None, work()) == 42
