"""The settings of every process, read once in its `main` and passed down."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AliasChoices, Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, SettingsConfigDict

from storage.errors import SettingsError

Port = Annotated[int, Field(ge=0, le=65535)]


class Settings(BaseSettings):
    """Each field is the environment variable `TIMBRELAY_<NAME>`; the two server URLs go by their usual names."""

    model_config = SettingsConfigDict(env_prefix="TIMBRELAY_", frozen=True, use_attribute_docstrings=True)

    database_url: str = Field(
        pattern=r"^postgres(ql)?(\+\w+)?://",
        validation_alias=AliasChoices("DATABASE_URL", "TIMBRELAY_DATABASE_URL"),
    )
    """Postgres (14 or newer) as `postgresql://user:password@host/name`; the services act in `service_role`."""

    redis_url: str = Field(
        pattern=r"^(rediss?|unix)://", validation_alias=AliasChoices("REDIS_URL", "TIMBRELAY_REDIS_URL")
    )
    """Valkey or Redis (7 or newer) as `redis://host:port/0`, `rediss://` or `unix:///path`."""

    database_owner_url: str = Field(
        default="", validation_alias=AliasChoices("DATABASE_OWNER_URL", "TIMBRELAY_DATABASE_OWNER_URL")
    )
    """The login that owns the tables, for migrations and operator commands; `database_url` when empty."""

    service_role: str = Field(default="timbrelay_service", pattern=r"^[a-z_][a-z0-9_]{0,62}$")
    """The Postgres role without BYPASSRLS that every service transaction runs as."""

    operator_role: str = Field(default="timbrelay_operator", pattern=r"^[a-z_][a-z0-9_]{0,62}$")
    """The Postgres role, also without BYPASSRLS, that sees all tenants and their keys, and nobody's voice."""

    root_key: SecretStr = SecretStr("")
    """The 32-byte root key that wraps every tenant's key, base64; older ones after it, between commas."""

    root_key_file: Path = Path()
    """A file (mode 0600) that holds the root key in base64, older ones on later lines; if `root_key` is empty."""

    key_provider: str = Field(default="local", pattern=r"^(local|aws_kms|vault_transit)$")
    """Who holds the root key: `root_key` or `root_key_file` (`local`), AWS KMS or Vault Transit (docs/keys.md)."""

    kms_key: str = ""
    """The key at AWS KMS, best as `alias/NAME`, which rotation can lead on to a new key."""

    kms_region: str = ""
    """The region of the KMS key; as AWS's own configuration says when empty."""

    kms_endpoint: str = Field(default="", pattern=r"^(https?://.*)?$")
    """Another address for KMS, such as a VPC endpoint's; the region's usual one when empty."""

    vault_url: str = Field(default="", pattern=r"^(https?://.*)?$")
    """Vault or OpenBao as `https://vault.internal:8200`."""

    vault_key: str = Field(default="timbrelay", pattern=r"^[A-Za-z0-9_-]{1,64}$")
    """The name of the Transit key."""

    vault_mount: str = Field(default="transit", pattern=r"^[A-Za-z0-9_-]{1,32}(/[A-Za-z0-9_-]{1,16})?$")
    """Where the Transit engine is mounted."""

    vault_namespace: str = ""
    """The Vault namespace, if there are several."""

    vault_token_file: Path = Path()
    """A file with the Vault token, read again for every call, as Vault Agent keeps it; if `vault_token` is empty."""

    vault_token: SecretStr = SecretStr("")
    """The Vault token, for as long as it lives."""

    bundle: Path = Path("bundles/base")
    """The folder of the voice model in service."""

    lexicon: Path = Path()
    """A file of words and how they are said, one WORD<TAB>PRONUNCIATION a line (ARPAbet, IPA or a respelling)."""

    relay_host: str = "127.0.0.1"
    """The address that the relay listens on."""

    relay_port: Port = 8080
    """The relay's port for clients."""

    relay_tls_certificate: Path = Path()
    """A PEM file with the certificate (and those that lead to its root) for `https` and `wss`; plain when empty."""

    relay_tls_key: Path = Field(default=Path(), validate_default=True)
    """The PEM file with the certificate's key, unencrypted; it is read when the relay starts."""

    metrics_host: str = "127.0.0.1"
    """The address of the port for Prometheus and probes; keep it inside the cluster."""

    relay_metrics_port: Port = 9464
    """The relay's port for `/healthz`, `/readyz` and `/metrics`."""

    worker_metrics_port: Port = 9465
    """The worker's port for `/healthz`, `/readyz` and `/metrics`."""

    worker_slots: int = Field(default=192, ge=1, le=1024)
    """How many sentences one worker holds side by side."""

    worker_rows: int = Field(default=32, ge=1, le=256)
    """The most sentences that go through the model in one step; 1 for one at a time."""

    worker_threads: int = Field(default=0, ge=0, le=64)
    """How many threads run a step of the model; 0: one less than there are cores, at least one and at most four."""

    backend: str = Field(default="auto", pattern=r"^(auto|cpu|cuda|tensorrt|torch)$")
    """What runs the model: ONNX Runtime (`cpu`, `cuda`, `tensorrt`), PyTorch (`torch`), or the fastest there is."""

    run_ahead_ms: int = Field(default=30_000, ge=200, le=600_000)
    """How far ahead of its listener a stream is synthesized; a listener who interrupts throws that much away."""

    chunk_ms: int = Field(default=80, ge=20, le=1000, multiple_of=10)
    """How long a chunk of audio is; the same for every worker and relay of a service, and what `hello` announces."""

    worker_capacity: int = Field(default=0, ge=0)
    """How many streams at real time a worker says it can hold; 0: as many as it has measured."""

    max_contexts: int = Field(default=1000, ge=1)
    """How many contexts one relay process holds open at once, speaking or not; a bound for its memory."""

    max_tenant_contexts: int = Field(default=32, ge=1)
    """How many contexts one tenant may hold on one relay process."""

    trusted_proxies: str = ""
    """Addresses and networks, between commas, of the proxies whose `X-Forwarded-For` says where a client is; none."""

    max_wrong_keys_per_minute: int = Field(default=20, ge=1)
    """How many keys that open nothing may come from one address (of IPv6, one /64) before it is turned away."""

    max_queue: int = Field(default=256, ge=1)
    """How many jobs may wait for a worker before new contexts are refused."""

    max_recording_bytes: int = Field(default=10 * 1024 * 1024, ge=1024)
    """The largest reference recording that is taken."""

    celery_processes: int = Field(default=2, ge=1, le=64)
    """How many tasks (enrolments, deletions, upkeep) one Celery works on side by side, each in a process of its own."""

    task_limit_s: float = Field(default=30.0, ge=1, le=600)
    """How long a task of Celery may take before it is killed; one whose Celery was killed comes back after 1.5 times
    as long."""

    claim_after_ms: int = Field(default=1500, ge=100)
    """How long a worker may be silent about a job before another one takes it over."""

    relay_ttl_ms: int = Field(default=3000, ge=500)
    """How long after a relay's last sign of life its jobs are dropped."""

    sentence_timeout_s: float = Field(default=20.0, gt=0)
    """How long a sentence may go without a chunk before its context ends with an error."""

    send_timeout_s: float = Field(default=10.0, gt=0)
    """How long a client may leave the socket unread before it is closed."""

    idle_timeout_s: float = Field(default=300.0, gt=0)
    """How long a connection may go without a message, in either direction, before it is closed."""

    connection_life_s: float = Field(default=14_400.0, ge=1)
    """How long a connection may live: its contexts are finished then, and its client is asked to connect again."""

    resume_window_s: float = Field(default=15.0, ge=0, le=300)
    """How long the contexts of a lost connection wait for their client to come back over another."""

    drain_timeout_s: float = Field(default=20.0, ge=0, le=600)
    """How long a relay that is told to stop lets its listeners finish; what kills it has to wait ten seconds longer."""

    allowed_origins: str = ""
    """Origins, between commas, of the pages that may ask for WebRTC from a browser (CORS); `*` for all; none."""

    webrtc_peers: int = Field(default=30, ge=0, le=500)
    """How many WebRTC peers one relay process holds, one tenant half of them at the most; 0 for none. A core carries
    about thirty that speak."""

    webrtc_candidates: str = Field(default="host", pattern=r"^(host|all|relay)$")
    """What a peer of the relay offers: its own addresses (`host`), what STUN and TURN give as well (`all`), or only
    what is relayed by TURN (`relay`), where no UDP port of the relay can be reached."""

    webrtc_address: str = Field(default="", pattern=r"^(\d{1,3}(\.\d{1,3}){3})?$")
    """The IPv4 address under which a 1:1 NAT makes the relay's UDP ports known, ports unchanged; offered as well."""

    webrtc_loopback: bool = False
    """Whether 127.0.0.1 is offered too, for browsers on the same machine when it has no network."""

    stun_urls: str = Field(default="", pattern=r"^(stuns?:[^,\s\"<>]+(, *|$))*$")
    """STUN servers that clients are told of, as `stun:stun.example.com:3478`, between commas."""

    turn_urls: str = Field(default="", pattern=r"^(turns?:[^,\s\"<>]+(, *|$))*$")
    """TURN servers that clients are told of, as `turn:turn.example.com:3478?transport=udp`, between commas."""

    turn_secret: SecretStr = SecretStr("")
    """What the relay and the TURN servers share (coturn's `static-auth-secret`), to make credentials that expire."""

    turn_ttl_s: int = Field(default=600, ge=60, le=86_400)
    """How long such credentials are good for making a connection."""

    log_level: str = Field(default="INFO", pattern=r"^(DEBUG|INFO|WARNING|ERROR)$")
    """The least level that is logged."""

    @field_validator("relay_tls_key")
    @classmethod
    def _belongs_to_a_certificate(cls, key: Path, info: ValidationInfo) -> Path:
        if (key == Path()) != (info.data.get("relay_tls_certificate") == Path()):
            raise PydanticCustomError("tls_pair", "a TLS certificate and its key are set both or neither")
        return key

    @classmethod
    def read(cls) -> Settings:
        """The settings from the environment.

        Raises SettingsError that names the variables at fault and never what they hold: a URL may hold a password.
        """
        try:
            return cls()  # type: ignore[call-arg]
        except ValidationError as error:
            problems = error.errors(include_url=False, include_input=False, include_context=False)
            raise SettingsError([(str(problem["loc"][0]), problem["msg"]) for problem in problems]) from None

    @property
    def owner_url(self) -> str:
        """The login for migrations and operator commands."""
        return self.database_owner_url or self.database_url
