"""Contexts that outlive their connection: cut hard, half open, too late, and by somebody else."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from redis.asyncio import Redis

from storage.settings import Settings
from tests.conftest import MakeTenant, MakeVoice, RunningStack, StartStack, Tenant
from tests.relay.conftest import EMBEDDING, noted
from tests.relay.native.ears import Ear, listen, share_speech
from tests.relay.native.test_open_sockets import figure, until
from tests.relay.sharing import Shared
from timbrelay.stack.servers import Servers

TEXT = (
    "Good morning, everybody. Thank you for coming here today. We have a great deal to talk about, and little time "
    "for it. Let us begin with the weather, which was never as good as this. After that comes the rest. "
)


@pytest.fixture(scope="module")
def shared(
    servers: Servers, clean_variables: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shared]:
    with share_speech(servers, clean_variables, tmp_path_factory.mktemp("shared")) as lent:
        yield lent


@pytest.fixture
def settings(shared: Shared) -> Settings:
    return shared.settings


@pytest.fixture
def stack(shared: Shared) -> RunningStack:
    return shared.stack


@pytest.fixture
async def tenant(make_tenant: MakeTenant) -> Tenant:
    return await make_tenant("acme")


@pytest.fixture
async def voice(tenant: Tenant, make_voice: MakeVoice) -> UUID:
    return await make_voice(tenant.id, embedding=EMBEDDING)


@pytest.fixture
async def alone(stack: RunningStack, tenant: Tenant, voice: UUID) -> Ear:
    """TEXT as it is heard without a disturbance."""
    async with listen(stack, tenant.key) as ear:
        await ear.speak(voice, TEXT)
        await ear.until("done")
    return ear


async def resume(ear: Ear, token: str, place: tuple[int, int]) -> dict[str, Any]:
    await ear.say("resume", token=token, sentence=place[0], chunk=place[1])
    return await ear.until("opened", "error")


@pytest.mark.parametrize("seed", range(3))
async def test_a_connection_that_is_cut_again_and_again_loses_nothing(
    stack: RunningStack, tenant: Tenant, voice: UUID, alone: Ear, seed: int
) -> None:
    """What the client has, and what it gets after each resume, is the whole audio, byte for byte, and all words."""
    whole = alone.frames["c"]
    cuts = sorted(random.Random(seed).sample(range(1, len(whole)), 4))
    have: list[tuple[tuple[int, int], bytes]] = []
    token, place = "", (0, -1)
    for cut in [*cuts, len(whole)]:
        async with listen(stack, tenant.key) as ear:
            if token:
                opened = await resume(ear, token, place)
                assert opened["type"] == "opened", opened
                assert (opened["characters"], opened["ended"]) == (len(TEXT), True)
                token = opened["resume"]
            else:
                await ear.speak(voice, TEXT)
                token = (await ear.until("opened"))["resume"]
            place = await ear.frame(cut - len(have))
            have += ear.frames["c"][: cut - len(have)]
            if cut == len(whole):
                done = await ear.until("done")
            else:
                ear.cut()
    assert have == whole
    assert (done["sentences"], done["samples"]) == (alone.messages[-1]["sentences"], len(alone.pcm()) // 2)


async def test_a_client_may_name_an_earlier_place_than_it_came_to(
    stack: RunningStack, tenant: Tenant, voice: UUID, alone: Ear
) -> None:
    """Whatever it names, it gets all that comes behind it, with the words and the flush that it may have missed."""
    whole = alone.frames["c"]
    places = [(0, -1), whole[0][0], whole[7][0], (2, -1), whole[-1][0]]
    async with listen(stack, tenant.key) as first:
        await first.speak(voice, TEXT)
        token = (await first.until("opened"))["resume"]
        await first.frame(5)
        first.cut()
    for place in places:
        async with listen(stack, tenant.key) as ear:
            token = (await resume(ear, token, place))["resume"]
            await ear.until("done")
            assert ear.frames.get("c", []) == [frame for frame in whole if frame[0] > place]
            ear.cut()


async def test_a_context_that_is_done_can_still_be_resumed(
    stack: RunningStack, tenant: Tenant, voice: UUID, alone: Ear, redis: Redis
) -> None:
    """The relay has sent everything and the client has not got it; it is put on record once."""
    async with listen(stack, tenant.key) as first:
        await first.speak(voice, TEXT)
        token = (await first.until("opened"))["resume"]
        await first.until("done")
        first.cut()
    before = len(await noted(redis, tenant.id, 2))
    async with listen(stack, tenant.key) as ear:
        await resume(ear, token, (1, 0))
        await ear.until("done")
    assert ear.frames["c"] == [frame for frame in alone.frames["c"] if frame[0] > (1, 0)]
    async with listen(stack, tenant.key) as last:
        await last.speak(voice, "The end.")
        await last.until("done")
    assert len(await noted(redis, tenant.id, before + 1)) == before + 1


async def test_a_connection_that_is_only_half_dead_lets_its_context_go(
    stack: RunningStack, tenant: Tenant, voice: UUID, alone: Ear
) -> None:
    """The relay believes that it is alive; whoever reads it is told where the context went, and gets no frame more."""
    async with listen(stack, tenant.key) as old, listen(stack, tenant.key) as new:
        await old.speak(voice, TEXT)
        token = (await old.until("opened"))["resume"]
        place = await old.frame(6)
        old.connection.transport.pause_reading()
        opened = await resume(new, token, place)
        assert opened["resume"] != token
        await new.until("done")
        old.connection.transport.resume_reading()
        await old.say("open", "d", voice="nobody")
        while (told := await old.hear()).get("code") != "unknown_voice":
            assert told["type"] in ("frame", "sentence", "sentence_end", "words", "done", "error")
    have = [frame for frame in old.frames["c"] if frame[0] <= place]
    assert have + new.frames["c"] == alone.frames["c"]


@pytest.mark.parametrize("other", ["acme", "other"])
async def test_a_token_is_its_tenants_and_good_for_one_time(
    stack: RunningStack, tenant: Tenant, voice: UUID, make_tenant: MakeTenant, other: str
) -> None:
    """Another tenant's is answered as one that never was; another key of the same tenant may come with it."""
    stranger = await make_tenant(other)
    async with listen(stack, tenant.key) as owner, listen(stack, stranger.key) as ear:
        await owner.say("open", voice=str(voice))
        token = (await owner.until("opened"))["resume"]
        answers = [await resume(ear, token, (0, -1)), await resume(ear, "f" * 32, (0, -1))]
        if other == "acme":
            assert [answer["type"] for answer in answers] == ["opened", "error"]
            assert (await owner.until("error"))["code"] == "resumed"
            answers = [await resume(owner, token, (0, -1))]
        for answer in answers:
            assert (answer["type"], answer["code"], answer["field"]) == ("error", "invalid_message", "token")
            assert "send the text" in answer["message"]
        if other == "other":
            await owner.say("text", text="Still here.")
            await owner.say("end")
            await owner.until("done")


async def test_a_place_that_the_client_cannot_have_come_to_is_refused(
    stack: RunningStack, tenant: Tenant, voice: UUID
) -> None:
    """And the context can be resumed as before."""
    async with listen(stack, tenant.key) as first:
        await first.say("open", voice=str(voice))
        token = (await first.until("opened"))["resume"]
        first.cut()
    async with listen(stack, tenant.key) as ear:
        for place in ((0, 5), (3, -1), (999_999, 0)):
            assert (await resume(ear, token, place))["code"] == "unknown_place"
        assert (await resume(ear, token, (0, -1)))["type"] == "opened"


async def test_a_resumed_context_goes_on_taking_text(
    stack: RunningStack, tenant: Tenant, voice: UUID, alone: Ear
) -> None:
    """`opened` says how much has arrived; what is sent behind it is spoken as if nothing had happened."""
    async with listen(stack, tenant.key) as first:
        await first.say("open", voice=str(voice))
        token = (await first.until("opened"))["resume"]
        await first.say("text", text=TEXT[:100])
        place = await first.frame(3)
        first.cut()
    async with listen(stack, tenant.key) as ear:
        opened = await resume(ear, token, place)
        assert (opened["characters"], opened["ended"]) == (100, False)
        await ear.say("text", text=TEXT[opened["characters"] :])
        await ear.say("end")
        await ear.until("done")
    assert first.frames["c"][:3] + ear.frames["c"] == alone.frames["c"]


async def test_a_context_that_nobody_came_back_for_is_gone(
    start_relay: StartStack, make_tenant: MakeTenant, make_voice: MakeVoice
) -> None:
    """After the window its place is free, and the error says what to do."""
    stack = start_relay(resume_window_s=0.5)
    tenant = await make_tenant("late")
    voice = await make_voice(tenant.id, embedding=EMBEDDING)
    async with listen(stack, tenant.key) as first:
        await first.say("open", voice=str(voice))
        token = (await first.until("opened"))["resume"]
        first.cut()

    async def is_gone() -> bool:
        return await figure(stack, "timbrelay_connections ") == 0 == await figure(stack, "timbrelay_contexts ")

    await until(is_gone)
    async with listen(stack, tenant.key) as ear:
        answer = await resume(ear, token, (0, -1))
        assert (answer["code"], answer["field"]) == ("invalid_message", "token")
    stack.kill("relay")
    stack.start("relay")
    stack.wait_ready()
    async with listen(stack, tenant.key) as ear:
        assert "the relay has restarted" in (await resume(ear, token, (0, -1)))["message"]


async def test_who_says_goodbye_does_not_come_back(
    start_relay: StartStack, make_tenant: MakeTenant, make_voice: MakeVoice
) -> None:
    """A connection that was closed in order takes its contexts with it at once."""
    stack = start_relay(resume_window_s=60.0)
    tenant = await make_tenant("polite")
    voice = await make_voice(tenant.id, embedding=EMBEDDING)
    async with listen(stack, tenant.key) as first:
        await first.say("open", voice=str(voice))
        token = (await first.until("opened"))["resume"]
    async with listen(stack, tenant.key) as ear:
        assert (await resume(ear, token, (0, -1)))["type"] == "error"


async def test_what_was_not_spoken_of_a_failed_context_is_named(
    shared: Shared, start_relay: StartStack, tenant: Tenant, voice: UUID
) -> None:
    """From the first sentence that was not heard to the end of the text."""
    stack = start_relay(sentence_timeout_s=0.5)
    shared.stack.pause("worker")
    try:
        async with listen(stack, tenant.key) as ear:
            await ear.say("open", voice=str(voice))
            await ear.say("text", text="  Nobody will say this. Nor that")
            error = await ear.until("error")
    finally:
        shared.stack.resume("worker")
    assert (error["code"], error["context"]) == ("timeout", "c")
    assert error["unspoken"] == {"start": 2, "end": 32}
