"""Root keys at AWS KMS: symmetric keys that never leave it; the label is the encryption context.

AWS Key Management Service API Reference: Encrypt, Decrypt, DescribeKey, CreateKey, UpdateAlias, ScheduleKeyDeletion.
The context stands in AWS's own audit trail (CloudTrail) in the clear: it holds ids and kinds, nothing of a person.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from storage.encryption.envelope import Label
from storage.encryption.providers import WrappedKey, load_library
from storage.encryption.secrets import SecretBytes
from storage.errors import DecryptionError, RootKeyError, ServerUnavailable, StorageError
from storage.settings import Settings

CONNECT_TIMEOUT_S = 1
READ_TIMEOUT_S = 2
ATTEMPTS = 2
"""With the pause between them no call takes longer than 8 s."""

PENDING_DAYS = 30
"""How long AWS waits before it destroys a key, the longest that it offers: until then the deletion can be cancelled."""

_REFUSED = {
    "NotFoundException": "is not there: check TIMBRELAY_KMS_KEY and TIMBRELAY_KMS_REGION",
    "InvalidArnException": "is not a key's name: check TIMBRELAY_KMS_KEY",
    "AccessDeniedException": "is not for this identity: allow it kms:Encrypt, kms:Decrypt and kms:DescribeKey",
    "UnrecognizedClientException": "was asked for with credentials that AWS does not know",
    "InvalidClientTokenId": "was asked for with credentials that AWS does not know",
    "InvalidSignatureException": "was asked for with credentials that AWS does not accept",
    "ExpiredTokenException": "was asked for with credentials that have expired",
    "DisabledException": "is disabled: enable it again",
    "KMSInvalidStateException": "cannot be used in its state: cancel its deletion or enable it again",
    "InvalidKeyUsageException": "is not for encryption: it takes a symmetric key",
}
_DAMAGED = {"InvalidCiphertextException", "IncorrectKeyException"}
_ANSWERS_LATER = {
    "ThrottlingException",
    "Throttling",
    "TooManyRequestsException",
    "RequestLimitExceeded",
    "KMSInternalException",
    "DependencyTimeoutException",
    "KeyUnavailableException",
    "InternalFailure",
    "ServiceUnavailableException",
}


class KmsKeys:
    """A KeyProvider over AWS KMS. Credentials come the usual AWS way (environment, profile, role of the machine)."""

    def __init__(self, client: Any, key: str) -> None:
        self._client = client
        self._key = key

    @classmethod
    def from_settings(cls, settings: Settings) -> KmsKeys:
        """Raises RootKeyError when boto3 or a setting is missing; the network is not touched yet."""
        if not settings.kms_key:
            raise RootKeyError("no root key: set TIMBRELAY_KMS_KEY to a key of AWS KMS, best as alias/NAME")
        boto3 = load_library("boto3", "aws", "aws_kms")
        config = load_library("botocore.config", "aws", "aws_kms").Config(
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=READ_TIMEOUT_S,
            retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
        )
        given = {"region_name": settings.kms_region, "endpoint_url": settings.kms_endpoint}
        try:
            client = boto3.session.Session().client(
                "kms", config=config, **{name: value for name, value in given.items() if value}
            )
        except _aws_error() as error:
            raise RootKeyError(f"AWS KMS cannot be used: {error}; set TIMBRELAY_KMS_REGION") from error
        return cls(client, settings.kms_key)

    @property
    def root_key_id(self) -> str:
        """The ARN of the key that the alias points to; asks AWS."""
        answer = self._ask(self._client.describe_key, KeyId=self._key)
        return str(answer["KeyMetadata"]["Arn"])

    def wrap(self, key: SecretBytes, label: Label) -> WrappedKey:
        """Encrypt under the key that the alias points to."""
        answer = self._ask(
            self._client.encrypt, KeyId=self._key, Plaintext=key.reveal(), EncryptionContext=_context(label)
        )
        return WrappedKey(str(answer["KeyId"]), bytes(answer["CiphertextBlob"]))

    def unwrap(self, wrapped: WrappedKey, label: Label) -> SecretBytes:
        """Decrypt with the key that wrapped it, and no other."""
        answer = self._ask(
            self._client.decrypt,
            label,
            KeyId=wrapped.root_key_id,
            CiphertextBlob=wrapped.ciphertext,
            EncryptionContext=_context(label),
        )
        return SecretBytes(bytes(answer["Plaintext"]))

    def make_root_key(self) -> str:
        """Make a key under the old one's policy and let the alias point to it; needs rights that services do not."""
        if not self._key.startswith("alias/"):
            raise RootKeyError(
                f"TIMBRELAY_KMS_KEY is {self._key}, not an alias: make an alias for it, set TIMBRELAY_KMS_KEY to "
                "alias/NAME everywhere, and rotate then; or set it to a new key and run the rotation"
            )
        current = self.root_key_id
        policy = self._ask(self._client.get_key_policy, KeyId=current, PolicyName="default")["Policy"]
        made = self._ask(
            self._client.create_key,
            Description=f"Timbrelay root key behind {self._key}",
            Policy=policy,
            Tags=[{"TagKey": "timbrelay:follows", "TagValue": current}],
        )["KeyMetadata"]
        self._ask(self._client.update_alias, AliasName=self._key, TargetKeyId=made["KeyId"])
        return str(made["Arn"])

    def known_root_keys(self) -> list[str]:
        """The current one: AWS does not say which keys an alias has pointed to."""
        return [self.root_key_id]

    def destroy_root_key(self, root_key_id: str) -> None:
        """Schedule the key's deletion; AWS destroys it in PENDING_DAYS, and until then nothing decrypts with it."""
        if root_key_id == self.root_key_id:
            raise RootKeyError(f"the root key {root_key_id} is in use and is not destroyed")
        state = self._ask(self._client.describe_key, KeyId=root_key_id)["KeyMetadata"]
        if state["KeyState"] != "PendingDeletion":
            self._ask(self._client.schedule_key_deletion, KeyId=state["KeyId"], PendingWindowInDays=PENDING_DAYS)

    def _ask(self, call: Callable[..., dict[str, Any]], label: Label | None = None, **question: Any) -> dict[str, Any]:
        try:
            return call(**question)
        except _aws_error() as error:
            raise _translate(error, label, str(question.get("KeyId", self._key))) from error


def _context(label: Label) -> dict[str, str]:
    return {
        "tenant": str(label.tenant),
        "owner": str(label.owner),
        "kind": label.kind.value,
        "version": str(label.version),
    }


def _aws_error() -> tuple[type[Exception], ...]:
    errors = load_library("botocore.exceptions", "aws", "aws_kms")
    return (errors.ClientError, errors.BotoCoreError)


def _translate(error: Exception, label: Label | None, key: str) -> StorageError:
    errors = load_library("botocore.exceptions", "aws", "aws_kms")
    if isinstance(error, errors.ClientError):
        answer: dict[str, Any] = getattr(error, "response", {})
        code = str(answer.get("Error", {}).get("Code", ""))
        status = int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        if code in _DAMAGED and label is not None:
            return DecryptionError(label.kind)
        if code in _ANSWERS_LATER or status >= 500 or status == 429:
            return ServerUnavailable("AWS KMS", code or f"status {status}")
        return RootKeyError(f"the root key {key} at AWS KMS {_REFUSED.get(code, f'was refused ({code})')}")
    if isinstance(error, errors.NoCredentialsError | errors.PartialCredentialsError | errors.ProfileNotFound):
        return RootKeyError("AWS KMS was not asked, for want of credentials: give this process a role or a profile")
    return ServerUnavailable("AWS KMS", type(error).__name__)
