"""storage.encryption.providers.aws_kms, against moto's server over HTTP; what moto cannot say, a small server says."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pydantic import SecretStr

from storage.database import Database
from storage.encryption.envelope import Kind, Label, new_key
from storage.encryption.keyring import Keyring
from storage.encryption.providers import KeyProvider, WrappedKey
from storage.encryption.providers.choice import open_provider
from storage.encryption.rotation import read_root_keys
from storage.errors import DecryptionError, RootKeyError, ServerUnavailable, StorageError
from storage.settings import Settings
from tests.conftest import MakeTenant
from tests.storage.keyrings import load_keys, make_keys, quietly, rotate_root_key

boto3 = pytest.importorskip("boto3", reason="boto3 is not installed (extra aws)")
moto_server = pytest.importorskip("moto.server", reason="moto is not installed (extra test)")

LABEL = Label(uuid4(), uuid4(), Kind.TENANT_KEY)
ALIAS = "alias/timbrelay"
LIMIT_S = 10.0
"""What a call may take at most, with everything that this machine does besides."""


def _settings(endpoint: str, **values: str) -> Settings:
    given = {"kms_endpoint": endpoint, "kms_region": "eu-central-1", "kms_key": ALIAS, **values}
    urls = {"DATABASE_URL": "postgresql://x", "REDIS_URL": "redis://x"}
    return Settings.model_validate({**urls, "key_provider": "aws_kms", **given})


@pytest.fixture(scope="module", autouse=True)
def _credentials() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "testing")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        yield


@pytest.fixture
def moto() -> Iterator[Any]:
    """The server, empty."""
    server = moto_server.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def endpoint(moto: Any) -> str:
    """Its address, with a key behind ALIAS."""
    address = "http://{}:{}".format(*moto.get_host_and_port())
    httpx2.post(f"{address}/moto-api/reset").raise_for_status()
    client = _client(address)
    key = client.create_key()["KeyMetadata"]["KeyId"]
    client.create_alias(AliasName=ALIAS, TargetKeyId=key)
    return address


@pytest.fixture
def provider(endpoint: str) -> KeyProvider:
    """The provider as the settings make it."""
    return open_provider(_settings(endpoint))


class Stubborn:
    """A server that answers every request with one error of AWS, or never, and a provider that asks it."""

    def __init__(self) -> None:
        self.answer: tuple[int, str] | None = None
        self.gone = threading.Event()
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server = server
        self.provider = open_provider(_settings(f"http://127.0.0.1:{server.server_address[1]}"))
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        stubborn = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                if stubborn.answer is None:
                    stubborn.gone.wait(60)
                    return
                status, code = stubborn.answer
                body = json.dumps({"__type": code, "message": "as asked"}).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/x-amz-json-1.1")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        return Handler


@pytest.fixture(scope="module")
def stubborn() -> Iterator[Stubborn]:
    """One for all tests: a client of AWS takes a second to make."""
    made = Stubborn()
    yield made
    made.gone.set()
    made.server.shutdown()
    made.server.server_close()


def test_a_key_comes_back_as_it_went(provider: KeyProvider) -> None:
    """Wrapped under the alias's key, whose ARN it carries, and different each time."""
    key = new_key()
    first, second = provider.wrap(key, LABEL), provider.wrap(key, LABEL)
    assert first.root_key_id == provider.root_key_id
    assert first.root_key_id.startswith("arn:aws:kms:eu-central-1:")
    assert first.ciphertext != second.ciphertext
    assert key.reveal() not in first.ciphertext
    assert provider.unwrap(first, LABEL) == provider.unwrap(second, LABEL) == key
    assert provider.known_root_keys() == [first.root_key_id]


@hypothesis_settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(label=st.builds(Label, st.uuids(), st.uuids(), st.sampled_from(Kind), st.integers(0, 9)), bit=st.integers(0))
def test_the_label_and_every_bit_count(provider: KeyProvider, label: Label, bit: int) -> None:
    """Any field of the label that differs, and any changed bit of the ciphertext, is refused."""
    wrapped = provider.wrap(new_key(), LABEL)
    for name in ("tenant", "owner", "kind", "version"):
        other = replace(LABEL, **{name: getattr(label, name)})
        if other != LABEL:
            with pytest.raises(DecryptionError):
                provider.unwrap(wrapped, other)
    # Moto's own ciphertext begins with the key's name.
    damaged = bytearray(wrapped.ciphertext)
    place = 36 + bit % (len(damaged) - 36)
    damaged[place] ^= 1 << bit % 8
    assume(bytes(damaged) != wrapped.ciphertext)
    with pytest.raises(DecryptionError):
        provider.unwrap(WrappedKey(wrapped.root_key_id, bytes(damaged)), LABEL)


def test_a_rotation_leads_the_alias_on(provider: KeyProvider, endpoint: str) -> None:
    """The new key wraps at once, under the old one's policy; the old one unwraps until it is destroyed, in 30 days."""
    client, old, key = _client(endpoint), provider.root_key_id, new_key()
    client.put_key_policy(KeyId=old, PolicyName="default", Policy='{"Version": "2012-10-17", "Id": "ours"}')
    before = provider.wrap(key, LABEL)
    made = provider.make_root_key()
    assert made != old
    assert provider.wrap(key, LABEL).root_key_id == provider.root_key_id == made
    assert "ours" in client.get_key_policy(KeyId=made, PolicyName="default")["Policy"]
    assert provider.unwrap(before, LABEL) == key
    with pytest.raises(RootKeyError, match="in use"):
        provider.destroy_root_key(made)
    provider.destroy_root_key(old)
    state = client.describe_key(KeyId=old)["KeyMetadata"]
    assert state["KeyState"] == "PendingDeletion"


def test_without_an_alias_there_is_nothing_to_lead_on(endpoint: str) -> None:
    """A key that is named itself is not rotated by us; the refusal says how it can be."""
    direct = open_provider(_settings(endpoint, kms_key=open_provider(_settings(endpoint)).root_key_id))
    with pytest.raises(RootKeyError, match="not an alias"):
        direct.make_root_key()


def test_a_key_that_is_not_there_is_named(endpoint: str) -> None:
    """A wrong alias is an error that says which settings to look at."""
    with pytest.raises(RootKeyError, match="alias/wrong at AWS KMS is not there: check TIMBRELAY_KMS_KEY"):
        open_provider(_settings(endpoint, kms_key="alias/wrong")).wrap(new_key(), LABEL)


def test_a_server_that_is_gone_is_unavailable_within_the_bound(provider: KeyProvider, moto: Any) -> None:
    """When nobody listens any more, the answer is a retryable error, soon."""
    wrapped = provider.wrap(new_key(), LABEL)
    moto.stop()
    moto._server.server_close()
    _expect_unavailable(provider, wrapped)


def test_a_server_that_does_not_answer_is_unavailable_within_the_bound(stubborn: Stubborn) -> None:
    """When it takes the connection and says nothing, as well."""
    stubborn.answer = None
    _expect_unavailable(stubborn.provider, WrappedKey("arn:x", b"sealed"))


async def test_a_service_under_kms_rotates_and_outlives_an_outage(
    provider: KeyProvider, moto: Any, database: Database, make_tenant: MakeTenant
) -> None:
    """Every tenant's key comes under the new key of KMS; when KMS is gone, tenants in use go on, others wait."""
    tenant, other = (await make_tenant("acme")).id, (await make_tenant("other")).id
    serving = Keyring(provider)
    before = {one: await make_keys(database, Keyring(provider), one, 2) for one in (tenant, other)}
    old = provider.root_key_id
    new = await rotate_root_key(database, Keyring(provider), destroy_old=True)
    found = await read_root_keys(database, provider, quietly)
    assert (found.in_use, found.current == new != old) == ({new}, True)
    assert await load_keys(database, serving, tenant) == before[tenant]
    moto.stop()
    moto._server.server_close()
    for _ in range(2):
        assert await load_keys(database, serving, tenant) == before[tenant]
        began = time.monotonic()
        with pytest.raises(ServerUnavailable, match="AWS KMS"):
            await load_keys(database, serving, other)
        assert time.monotonic() - began < LIMIT_S


async def test_a_service_moves_from_a_file_to_kms(
    settings: Settings, endpoint: str, database: Database, keyring: Keyring, make_tenant: MakeTenant
) -> None:
    """With both configured everything opens; a rotation brings it under KMS; then the local root key is not needed."""
    tenant = (await make_tenant("acme")).id
    before = await make_keys(database, keyring, tenant, 2)
    chosen = {name: getattr(_settings(endpoint), name) for name in ("key_provider", "kms_key", "kms_region")}
    both = settings.model_copy(update={**chosen, "kms_endpoint": endpoint})
    provider = open_provider(both)
    assert await load_keys(database, Keyring(provider), tenant) == before
    assert await rotate_root_key(database, Keyring(provider)) == provider.root_key_id
    alone = open_provider(both.model_copy(update={"root_key": SecretStr("")}))
    assert await load_keys(database, Keyring(alone), tenant) == before
    local = keyring.provider.wrap(new_key(), LABEL)
    with pytest.raises(RootKeyError, match="set TIMBRELAY_ROOT_KEY"):
        alone.unwrap(local, LABEL)
    with pytest.raises(RootKeyError, match="destroy what TIMBRELAY_ROOT_KEY"):
        provider.destroy_root_key(local.root_key_id)


@pytest.mark.parametrize(
    ("status", "code", "expected", "sentence"),
    [
        (400, "AccessDeniedException", RootKeyError, "allow it kms:Encrypt"),
        (400, "UnrecognizedClientException", RootKeyError, "credentials that AWS does not know"),
        (400, "ExpiredTokenException", RootKeyError, "have expired"),
        (400, "DisabledException", RootKeyError, "enable it again"),
        (400, "KMSInvalidStateException", RootKeyError, "cancel its deletion"),
        (400, "SomethingNew", RootKeyError, "was refused (SomethingNew)"),
        (400, "IncorrectKeyException", DecryptionError, "tenant-key does not decrypt"),
        (400, "ThrottlingException", ServerUnavailable, "ThrottlingException"),
        (500, "KMSInternalException", ServerUnavailable, "KMSInternalException"),
        (400, "DependencyTimeoutException", ServerUnavailable, "DependencyTimeoutException"),
    ],
)
def test_what_aws_answers_is_one_of_our_errors(
    stubborn: Stubborn, status: int, code: str, expected: type[StorageError], sentence: str
) -> None:
    """Refusals say what to do; overload can be tried again; nothing of the key is told."""
    stubborn.answer = (status, code)
    with pytest.raises(expected) as caught:
        stubborn.provider.unwrap(WrappedKey("arn:x", b"sealed"), LABEL)
    assert sentence in str(caught.value)
    assert caught.value.retryable == (expected is ServerUnavailable)


def test_without_credentials_or_region_it_says_so(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that AWS cannot know is told what it lacks."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, "/nonexistent")
    with pytest.raises(RootKeyError, match="want of credentials"):
        open_provider(_settings(endpoint)).wrap(new_key(), LABEL)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    with pytest.raises(RootKeyError, match="TIMBRELAY_KMS_REGION"):
        open_provider(_settings("", kms_region=""))


def _client(endpoint: str) -> Any:
    return boto3.client(
        "kms",
        endpoint_url=endpoint,
        region_name="eu-central-1",
        aws_access_key_id="testing",
        aws_secret_access_key="testing",
    )


def _expect_unavailable(provider: KeyProvider, wrapped: WrappedKey) -> None:
    for call in (lambda: provider.unwrap(wrapped, LABEL), lambda: provider.wrap(new_key(), LABEL)):
        began = time.monotonic()
        with pytest.raises(ServerUnavailable) as caught:
            call()
        assert caught.value.retryable
        assert time.monotonic() - began < LIMIT_S
