"""One tenant's life with voices, as a client leads it, and all that has to stay secret of it."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import secrets
import zipfile
from dataclasses import dataclass, field
from typing import Any

import httpx2
import numpy as np
import soundfile
from websockets.asyncio.client import connect

from tests.system.plaintext import Secret

SIGNER, STATEMENT = "Wilhelmina Quackenbush-Thorne", "Hereby I, being of sound larynx, permit this peculiar cloning."
NAME, ALIAS = "Zephyrine Quillfeather's narrator", "quillfeather-narrator.7781"
SPOKEN = "Seventeen bashful walruses juggle kumquats behind Grandmother's xylophone."
WRONG_KEY = "tr_" + secrets.token_urlsafe(32)
ADDRESS = "203.0.113.177"
"""Where the client says that it is, by way of a proxy that is believed."""
_WAIT_S = 30


@dataclass(slots=True)
class Life:
    """A tenant's voices on a stack, and all that must stay secret of them."""

    http: httpx2.AsyncClient
    key: str
    secrets: list[Secret] = field(default_factory=list)

    async def ask(self, method: str, path: str, *statuses: int, **content: Any) -> Any:
        answer = await self.http.request(method, path, **content)
        assert answer.status_code in (statuses or (200, 201, 202)), answer.text
        return answer

    def hide(self, name: str, content: bytes) -> bytes:
        self.secrets.append(Secret(name, content))
        return content

    def hide_recording(self, name: str, content: bytes) -> bytes:
        """As it is sent, and as samples of either kind."""
        with contextlib.suppress(soundfile.LibsndfileError):
            samples, _ = soundfile.read(io.BytesIO(content), dtype="float32")
            self.hide(f"{name}, samples", samples.tobytes())
            self.hide(f"{name}, samples of 16 bits", (samples * 32768).astype("<i2").tobytes())
        return self.hide(name, content)

    async def consent(self, spoken: bytes | None = None) -> str:
        fields = {"signer": SIGNER, "statement": STATEMENT, "statement_version": "1", "language": "en", "purpose": "x"}
        if spoken is None:
            answer = await self.ask("POST", "/v1/consents", json=fields)
        else:
            answer = await self.ask("POST", "/v1/consents", data=fields, files={"recording": ("a", spoken)})
        return str(answer.json()["id"])

    async def upload(
        self, path: str, consent: str, recording: bytes, name: str = NAME, **headers: str
    ) -> dict[str, Any]:
        """A new voice, or another recording of one, under a file name that says too much."""
        fields = {"consent": consent} | ({"name": name} if path == "/v1/voices" else {})
        files = {"recording": (f"{SIGNER}.wav", recording)}
        body: dict[str, Any] = (await self.ask("POST", path, data=fields, files=files, headers=headers)).json()
        return body

    async def wait(self, voice: str) -> str:
        """The state of the newest recording when it waits no more."""
        found = (await self.ask("GET", f"/v1/voices/{voice}", params={"wait": _WAIT_S})).json()
        return str(found["enrolment"]["state"])

    async def wait_deleted(self, voice: str) -> None:
        async with asyncio.timeout(_WAIT_S):
            while True:
                deletions = (await self.ask("GET", "/v1/deletions")).json()["deletions"]
                if any(one["object_id"] == voice and one["receipt"] for one in deletions):
                    return
                await asyncio.sleep(0.1)

    async def speak(self, voice: str) -> None:
        """Say SPOKEN, after some messages that cannot be read and hold it, too."""
        url = f"ws{str(self.http.base_url).removeprefix('http').rstrip('/')}/v1/stream?key={self.key}"
        async with connect(url, additional_headers=headers_of(self.key)) as socket:
            for bad in (
                SPOKEN,
                json.dumps({"type": SPOKEN, "context": "a"}),
                json.dumps({"type": "text", "x": SPOKEN}),
            ):
                await socket.send(bad)
            for message in ({"type": "open", "voice": voice}, {"type": "text", "text": SPOKEN}, {"type": "end"}):
                await socket.send(json.dumps({**message, "context": "a"}))
            async with asyncio.timeout(_WAIT_S):
                async for answer in socket:
                    if isinstance(answer, str) and json.loads(answer)["type"] == "done":
                        return
        raise AssertionError("it was not spoken to its end")

    async def export(self, voice: str) -> None:
        """Everything that is held on the voice, which is what must not be found elsewhere."""
        with zipfile.ZipFile(io.BytesIO((await self.ask("GET", f"/v1/voices/{voice}/export")).content)) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        (number,) = {name.split("/")[1] for name in files if name.startswith("versions/")}
        self.hide_recording("the stored recording", files[f"versions/{number}/recording.flac"])
        embedding = self.hide("the embedding", files[f"versions/{number}/embedding.f32"])
        values = np.frombuffer(embedding, "<f4")
        self.hide("the embedding as text", f"{values.tolist()}{list(map(str, values))}".encode())
        assert any(SIGNER.encode() in content for content in files.values())

    async def offend(self, consent: str, recording: bytes) -> None:
        """Requests that are refused, and hold what nobody may repeat."""
        json_kind = {"Content-Type": "application/json"}
        broken = f'{{"signer": "{SIGNER}", "statement": "{STATEMENT}"'
        await self.ask("POST", "/v1/consents", 415, content=broken)
        await self.ask("POST", "/v1/consents", 422, content=broken, headers=json_kind)
        await self.ask("POST", "/v1/consents", 422, content=f'{{"{STATEMENT}": 1}}', headers=json_kind)
        await self.ask("POST", "/v1/consents", 422, json={"signer": [SIGNER], "statement": {STATEMENT: STATEMENT}})
        await self.ask("POST", "/v1/consents", 422, content=STATEMENT.encode("utf-16"), headers=json_kind)
        await self.ask("PUT", "/v1/aliases/x", 404, json={"voice": STATEMENT})
        await self.ask("GET", f"/v1/voices/{self.key}", 404)
        await self.ask("GET", "/v1/voices", 422, params={"cursor": self.key, "state": STATEMENT, "limit": SPOKEN})
        await self.ask("GET", f"/{self.key}", 404)
        await self.ask("GET", "/v1/voices", 401, headers={"Authorization": f"Bearer {WRONG_KEY}"})
        await self.ask("GET", "/v1/voices", 401, headers={"Authorization": self.key})
        fields, wrong = {"consent": consent, "name": NAME}, {"recording": ("a", recording)}
        await self.ask("POST", "/v1/voices", 404, data={**fields, "consent": STATEMENT}, files=wrong)
        await self.ask("POST", "/v1/voices", 422, data={**fields, "more": STATEMENT}, files=wrong)
        await self.ask("POST", "/v1/voices", 422, data=fields, files={STATEMENT: wrong["recording"]})
        await self.ask("POST", "/v1/voices", 413, data=fields, files={"recording": ("a", recording * 10)})


def _headers(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}", "X-Forwarded-For": ADDRESS}


def headers_of(key: str) -> dict[str, str]:
    """The key, and the address that a proxy would add."""
    return {"Authorization": f"Bearer {key}", "X-Forwarded-For": ADDRESS}
