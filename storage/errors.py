"""The storage room's errors.

StorageError
├── SettingsError         an environment variable is missing or malformed
├── PortInUse             another process listens where this one should
├── ServerUnavailable     Postgres or Redis does not answer
├── SchemaMismatch        the database is older or newer than the code
├── RootKeyError          the root key is missing or malformed
├── DecryptionError       a ciphertext is not what its row says it is
├── UnsafeRole            the service would run with row-level security switched off
├── MalformedEntry        a stream entry that this version cannot read
├── InvalidEvidence       a signed text does not prove what it says
├── IllegalTransition     a state machine was asked for a step it does not have
├── StaleRevision         a change was based on what is not there any more
├── InvalidValue          a name, an alias or a number breaks its rule
├── NameTaken             another has the name already
├── IdempotencyConflict   an idempotency key came again with another request
└── IdempotencyBusy       the request with this idempotency key is still being answered
"""

from __future__ import annotations


class StorageError(Exception):
    """Base of everything that goes wrong in what is queued or kept."""

    code = "internal"
    retryable = False


class ServerUnavailable(StorageError):
    """Raised when a server does not answer in time."""

    code = "unavailable"
    retryable = True

    def __init__(self, server: str, reason: str) -> None:
        super().__init__(f"{server} does not answer: {reason}")
        self.server = server
        self.reason = reason


class SettingsError(StorageError):
    """Raised when environment variables are missing or malformed; holds their names and what is wrong."""

    def __init__(self, problems: list[tuple[str, str]]) -> None:
        described = "; ".join(f"{name.upper()}: {problem[:1].lower()}{problem[1:]}" for name, problem in problems)
        super().__init__(f"the settings cannot be used ({described}); storage/settings.py documents each of them")
        self.problems = problems


class PortInUse(StorageError):
    """Raised when the port to listen on is taken; names the setting that chooses another."""

    def __init__(self, host: str, port: int, setting: str, reason: str) -> None:
        super().__init__(f"cannot listen on {host}:{port} ({reason}); choose another port with {setting}")
        self.host = host
        self.port = port
        self.setting = setting


class SchemaMismatch(StorageError):
    """Raised when the database's revision is not the one this code was written for."""

    def __init__(self, found: str | None, expected: str) -> None:
        super().__init__(
            f"the database is at revision {found or 'none'}, this version needs {expected}; "
            "run `timbrelay migrate` with the release you want to serve"
        )
        self.found = found
        self.expected = expected


class RootKeyError(StorageError):
    """Raised when the root key cannot be used; says where it was looked for."""


class DecryptionError(StorageError):
    """Raised when a ciphertext fails authentication: damaged, moved to another row, or another key's."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"a stored {kind} does not decrypt: it was damaged, moved, or sealed with another key")
        self.kind = kind


class UnsafeRole(StorageError):
    """Raised when the service's role could see every tenant's rows."""

    def __init__(self, role: str) -> None:
        super().__init__(
            f"the Postgres role {role!r} is a superuser, has BYPASSRLS or inherits the operator's role, so tenants "
            "would not be kept apart; set TIMBRELAY_SERVICE_ROLE to a role with none of these, and `timbrelay migrate`"
        )
        self.role = role


class MalformedEntry(StorageError):
    """Raised when a stream entry lacks a field or carries an unknown version."""


class InvalidEvidence(StorageError):
    """Raised when a receipt or another signed text does not prove what it says; tells why."""


class IllegalTransition(StorageError):
    """Raised when a state machine is asked for a step that its table does not have."""

    def __init__(self, machine: str, current: str, wanted: str) -> None:
        super().__init__(f"{machine} cannot go from {current} to {wanted}")
        self.machine = machine
        self.current = current
        self.wanted = wanted


class StaleRevision(StorageError):
    """Raised when a change names a revision that is not the present one."""

    def __init__(self, given: int, found: int) -> None:
        super().__init__(f"the change was made to revision {given}, but it is {found} by now; read it again")
        self.given = given
        self.found = found


class InvalidValue(StorageError):
    """Raised when a value breaks its rule; names the field and the rule, never the value."""

    def __init__(self, field: str, rule: str) -> None:
        super().__init__(f"`{field}` {rule}")
        self.field = field
        self.rule = rule


class NameTaken(StorageError):
    """Raised when a name that has to be unique belongs to another."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"there is a {kind} of that name already; choose another name")
        self.kind = kind


class IdempotencyConflict(StorageError):
    """Raised when an idempotency key that is known comes with another request."""

    def __init__(self) -> None:
        super().__init__("this idempotency key was used for another request; use a new key for a new request")


class IdempotencyBusy(StorageError):
    """Raised while the first request with an idempotency key is still being answered."""

    retryable = True

    def __init__(self) -> None:
        super().__init__("the first request with this idempotency key is still under way; ask again in a moment")
