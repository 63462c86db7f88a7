"""Consents and voices in OpenAI's dialect: ours, in the shape of theirs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from tests.conftest import MakeTenant, StartStack, Tenant
from tests.relay.dialects.openai.conftest import PATH, Http, knock
from tests.system.conftest import SAMPLES

CONSENTS, VOICES = "/openai/v1/audio/voice_consents", "/openai/v1/audio/voices"
RECORDING = ("low.wav", SAMPLES["low"].read_bytes(), "audio/wav")
OTHER = ("high.wav", SAMPLES["high"].read_bytes(), "audio/wav")
SIGNER = {"name": "A. Person", "language": "en-US"}


@pytest.fixture
async def acme(make_tenant: MakeTenant) -> Tenant:
    """A tenant with a key of all scopes."""
    return await make_tenant("acme")


@pytest.fixture
async def http(start_stack: StartStack, acme: Tenant) -> AsyncIterator[Http]:
    """The tenant's client of a whole stack."""
    stack = start_stack()
    async with knock(stack, acme) as client:
        yield client


def _error(answer: httpx2.Response, status: int, param: str | None, code: str) -> str:
    assert answer.status_code == status, answer.text
    error: dict[str, Any] = answer.json()["error"]
    assert (error["param"], error["code"]) == (param, code), error
    return str(error["message"])


async def _consent(http: Http, **changed: str) -> dict[str, Any]:
    answer = await http.post(CONSENTS, data={**SIGNER, **changed}, files={"recording": RECORDING})
    assert answer.status_code == 200, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def test_a_consent_and_a_sample_become_a_voice_that_speaks(http: Http, make_tenant: MakeTenant) -> None:
    """Made, spoken with, listed, deleted; when its consent is deleted so is the voice."""
    consent = await _consent(http)
    created = consent.pop("created_at")
    assert isinstance(created, int)
    assert consent == {"object": "audio.voice_consent", "id": consent["id"], **SIGNER}
    ours = (await http.get(f"/v1/consents/{consent['id']}")).json()
    assert (ours["signer"], ours["language"], ours["has_recording"]) == ("A. Person", "en-US", True)
    assert ours["statement"].startswith("I, A. Person, agree that acme makes")

    form = {"name": "Low", "consent": consent["id"]}
    made = await http.post(VOICES, data=form, files={"audio_sample": RECORDING})
    assert made.status_code == 200, made.text
    voice = made.json()
    assert (voice["object"], voice["name"], voice["type"]) == ("audio.voice", "Low", "audio_sample")
    said = await http.post(PATH, json={"input": "Hello.", "voice": {"id": voice["id"]}})
    assert (said.status_code, said.headers["content-type"]) == (200, "audio/mpeg")
    assert (await http.get(VOICES)).json()["data"] == [voice]
    assert (await http.get(f"{VOICES}/{voice['id']}")).json() == voice

    other = await http.post(VOICES, data=form, files={"audio_sample": OTHER})
    _error(other, 400, "audio_sample", "consent_speaker_mismatch")
    noise = await http.post(VOICES, data=form, files={"audio_sample": ("a.wav", b"no sound", "audio/wav")})
    _error(noise, 400, "audio_sample", "recording_not_audio")
    assert (await http.get(VOICES)).json()["data"] == [voice]

    stranger = {"Authorization": f"Bearer {(await make_tenant('other')).key}"}
    for path in (f"{VOICES}/{voice['id']}", f"{CONSENTS}/{consent['id']}"):
        for method in ("GET", "DELETE"):
            assert (await http.request(method, path, headers=stranger)).status_code == 404

    gone = await http.delete(f"{CONSENTS}/{consent['id']}")
    assert gone.json() == {"object": "audio.voice_consent", "id": consent["id"], "deleted": True}
    assert (await http.get(VOICES)).json()["data"] == []
    silent = await http.post(PATH, json={"input": "Hello.", "voice": voice["id"]})
    _error(silent, 404, "voice", "voice_not_found")


async def test_lists_go_on_after_the_last_id(http: Http) -> None:
    """Newest first; `has_more` and `after` lead through all of them, and a wrong `after` or `limit` is said."""
    made = [(await _consent(http, name=f"Person {number}"))["id"] for number in range(3)]
    first = (await http.get(CONSENTS, params={"limit": 2})).json()
    assert [consent["id"] for consent in first["data"]] == [first["first_id"], first["last_id"]] == made[:0:-1]
    assert first["has_more"]
    rest = (await http.get(CONSENTS, params={"limit": 2, "after": first["last_id"]})).json()
    assert ([consent["name"] for consent in rest["data"]], rest["has_more"]) == (["Person 0"], False)
    _error(await http.get(CONSENTS, params={"limit": 0}), 400, "limit", "number_below_min_value")
    _error(await http.get(CONSENTS, params={"after": "x"}), 404, "consent", "unknown_consent")
    _error(await http.get(VOICES, params={"after": str(uuid4())}), 404, "voice", "unknown_voice")
    assert (await http.get(VOICES)).json() == {
        "object": "list",
        "data": [],
        "first_id": None,
        "last_id": None,
        "has_more": False,
    }


async def test_what_is_missing_or_not_to_be_had_is_said(http: Http) -> None:
    """A voice without a consent, a consent without a recording, a language without a statement, a prompt."""
    sample = {"audio_sample": RECORDING}
    consent = (await _consent(http))["id"]
    told = _error(await http.post(VOICES, data={"name": "a"}, files=sample), 400, "consent", "invalid_request")
    assert "X-Timbrelay-Consent" in told
    unknown = {"name": "a", "consent": str(uuid4())}
    _error(await http.post(VOICES, data=unknown, files=sample), 404, "consent", "unknown_consent")
    _error(await http.post(VOICES, data={"consent": consent}, files=sample), 400, "name", "invalid_request")
    form = {"name": "a", "consent": consent}
    _error(await http.post(VOICES, data=form, files={"x": ("", b"")}), 400, "audio_sample", "invalid_request")
    prompt = {"type": "prompt", "name": "a", "prompt": "a deep voice"}
    _error(await http.post(VOICES, json=prompt), 400, "type", "unsupported_value")
    _error(await http.post(VOICES, data=prompt, files=sample), 400, "type", "unsupported_value")

    recording = {"recording": RECORDING}
    _error(await http.post(CONSENTS, data=SIGNER, files={"x": ("", b"")}), 400, "recording", "invalid_request")
    foreign = {**SIGNER, "language": "nl-NL"}
    _error(await http.post(CONSENTS, data=foreign, files=recording), 400, "language", "unsupported_value")
    nobody = {"language": "en"}
    _error(await http.post(CONSENTS, data=nobody, files=recording), 400, "name", "missing_required_parameter")
    _error(await http.post(f"{CONSENTS}/{consent}", json={"name": "B"}), 400, "name", "unsupported_value")
    big = {"recording": ("a.wav", b"x" * 11_000_000, "audio/wav")}
    _error(await http.post(CONSENTS, data=SIGNER, files=big), 413, "recording", "recording_too_large")
    assert (await http.get(f"{CONSENTS}/{consent}")).status_code == 200
