"""Voices in ElevenLabs' dialect: listed, found, cloned of a sample, renamed, deleted."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from storage.database import Database
from storage.encryption.keyring import Keyring
from storage.voices.consents import grant_consent
from tests.conftest import STATEMENT, TERMS, MakeTenant, MakeVoice
from tests.relay.dialects.elevenlabs.conftest import Http, Speaking, embed
from tests.system.conftest import SAMPLES

ONE_STACK = True
ENROLS = True
RECORDING = ("sample.wav", SAMPLES["low"].read_bytes(), "audio/wav")
SETTINGS = {"stability", "similarity_boost", "style", "use_speaker_boost", "speed"}


def read_detail(answer: httpx2.Response, status: int) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json()["detail"]


@pytest.fixture
async def consent(database: Database, keyring: Keyring, acme: Speaking) -> str:
    """The tenant's."""
    async with database.transaction(tenant=acme.tenant.id) as connection:
        return str((await grant_consent(connection, keyring, acme.tenant.id, TERMS, STATEMENT)).id)


async def add(http: Http, labels: str | None, **more: Any) -> httpx2.Response:
    """As the SDK sends it."""
    data = {"name": "reader", "remove_background_noise": "false", **({"labels": labels} if labels else {})}
    return await http.post("/v1/voices/add", data=data, files={"files": RECORDING}, **more)


async def test_a_voice_is_cloned_speaks_is_renamed_and_deleted(http: Http, acme: Speaking, consent: str) -> None:
    """By one sample and the consent in a label; deleted, it is unknown."""
    made = await add(http, json.dumps({"consent": consent, "language": "en"}))
    assert made.status_code == 200, made.text
    voice = made.json()["voice_id"]
    assert made.json()["requires_verification"] is False
    query = {"output_format": "pcm_24000"}
    spoken = await http.post(f"/v1/text-to-speech/{voice}", json={"text": "Good morning."}, params=query)
    assert len(spoken.content) > 24_000
    renamed = await http.post(f"/v1/voices/{voice}/edit", files={"name": (None, "evening reader")})
    assert renamed.json() == {"status": "ok"}
    assert (await http.get(f"/v1/voices/{voice}")).json()["name"] == "evening reader"
    assert (await http.delete(f"/v1/voices/{voice}")).json() == {"status": "ok"}
    assert read_detail(await http.get(f"/v1/voices/{voice}"), 404)["status"] == "voice_not_found"
    spoken = await http.post(f"/v1/text-to-speech/{voice}", json={"text": "Good morning."})
    assert read_detail(spoken, 404)["status"] == "voice_not_found"


async def test_the_consent_may_come_in_our_own_header(http: Http, consent: str) -> None:
    """For whoever cannot set labels; `null` is what the SDK sends for none."""
    made = await add(http, "null", headers={"X-Timbrelay-Consent": consent})
    assert made.status_code == 200, made.text


@pytest.mark.parametrize("labels", [None, "null", "{}", '{"language": "en"}'])
async def test_without_a_consent_there_is_no_voice(http: Http, labels: str | None) -> None:
    """And the refusal says how to send one."""
    (detail,) = read_detail(await add(http, labels), 422)
    assert detail["loc"] == ["body", "consent"]
    assert "labels" in detail["msg"]
    assert "X-Timbrelay-Consent" in detail["msg"]


@pytest.mark.parametrize("labels", ["no json", "[]", '{"consent": 5}'])
async def test_labels_that_cannot_be_read_are_named(http: Http, labels: str) -> None:
    """They are texts."""
    (detail,) = read_detail(await add(http, labels), 422)
    assert detail["loc"] == ["body", "labels"]


async def test_a_consent_that_is_not_there_is_named(http: Http) -> None:
    """As a bad request: the address of the request is right."""
    detail = read_detail(await add(http, json.dumps({"consent": str(uuid4())})), 400)
    assert detail["status"] == "consent_not_found"


async def test_a_recording_that_does_not_do_leaves_nothing(http: Http, consent: str) -> None:
    """The enrolment's own reason."""
    before = (await http.get("/v1/voices")).json()
    data = {"name": "noise", "labels": json.dumps({"consent": consent})}
    answer = await http.post("/v1/voices/add", data=data, files={"files": ("x.wav", b"no sound", "audio/wav")})
    assert read_detail(answer, 422)["message"]
    assert (await http.get("/v1/voices")).json() == before


async def test_voices_are_listed_as_clients_read_them(
    http: Http, acme: Speaking, make_tenant: MakeTenant, make_voice: MakeVoice
) -> None:
    """LiveKit reads id, name and category; another tenant's are not among them."""
    other = await make_tenant(f"other {uuid4()}")
    await make_voice(other.id, embedding=embed("high"), name="not yours")
    await make_voice(acme.tenant.id, name="still pending")
    second = str(await make_voice(acme.tenant.id, embedding=embed("high"), name="high"))
    voices = (await http.get("/v1/voices")).json()["voices"]
    assert [(voice["voice_id"], voice["name"], voice["category"]) for voice in voices] == [
        (second, "high", "cloned"),
        (acme.voice, "low", "cloned"),
    ]


async def test_the_newer_list_has_pages_and_a_search(http: Http, acme: Speaking, make_voice: MakeVoice) -> None:
    """Each voice once."""
    for number in range(4):
        await make_voice(acme.tenant.id, embedding=embed("high"), name=f"voice {number}")
    names: list[str] = []
    token = None
    for _ in range(3):
        page = (await http.get("/v2/voices", params={"page_size": 2, "next_page_token": token or ""})).json()
        names += [voice["name"] for voice in page["voices"]]
        assert page["total_count"] == 5
        token = page["next_page_token"]
        assert page["has_more"] == (token is not None)
    assert names == ["voice 3", "voice 2", "voice 1", "voice 0", "low"]
    found = (await http.get("/v2/voices", params={"search": "voice", "include_total_count": "false"})).json()
    assert len(found["voices"]) == 4
    assert not found["has_more"]
    (detail,) = read_detail(await http.get("/v2/voices", params={"page_size": "many"}), 422)
    assert detail["loc"][-1] == "page_size"
    read_detail(await http.get("/v2/voices", params={"next_page_token": "nonsense"}), 422)


async def test_another_tenants_voice_is_an_unknown_one(
    http: Http, make_tenant: MakeTenant, make_voice: MakeVoice
) -> None:
    """To read, rename and delete, in the same words."""
    other = await make_tenant(f"other {uuid4()}")
    foreign = str(await make_voice(other.id, embedding=embed("high"), name="not yours"))
    for path, method in (("", "GET"), ("", "DELETE"), ("/edit", "POST"), ("/settings", "GET")):
        messages = set()
        for voice in (foreign, str(uuid4())):
            more: dict[str, Any] = {"files": {"name": (None, "mine")}} if method == "POST" else {}
            answer = await http.request(method, f"/v1/voices/{voice}{path}", **more)
            detail = read_detail(answer, 404)
            assert detail["status"] == "voice_not_found"
            messages.add(detail["message"].replace(voice, "X"))
        assert len(messages) == 1


async def test_settings_are_the_default_ones(http: Http, acme: Speaking) -> None:
    """They can be read, and not kept."""
    default = (await http.get("/v1/voices/settings/default")).json()
    assert set(default) == SETTINGS
    assert (await http.get(f"/v1/voices/{acme.voice}/settings")).json() == default
    answer = await http.post(f"/v1/voices/{acme.voice}/settings/edit", json={"speed": 1.1})
    assert read_detail(answer, 400)["status"] == "not_supported"


async def test_there_is_one_model(http: Http) -> None:
    """For lists of what can be chosen."""
    models = (await http.get("/v1/models")).json()
    assert [model["can_do_text_to_speech"] for model in models] == [True]


async def test_a_key_that_only_speaks_makes_and_deletes_nothing(
    http: Http, acme: Speaking, make_tenant: MakeTenant, consent: str
) -> None:
    """It reads; without a key not even that."""
    tenant = await make_tenant(f"speaking {uuid4()}", scopes=("speak",))
    headers = {"xi-api-key": tenant.key}
    assert (await http.get("/v1/voices", headers=headers)).status_code == 200
    made = await add(http, json.dumps({"consent": consent}), headers=headers)
    assert read_detail(made, 403)["status"] == "missing_permissions"
    gone = await http.delete(f"/v1/voices/{acme.voice}", headers=headers)
    assert read_detail(gone, 403)["status"] == "missing_permissions"
    assert read_detail(await http.get("/v1/voices", headers={"xi-api-key": ""}), 401)["status"] == "needs_authorization"
