"""The states of what is kept, each with its one table of transitions."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from storage.errors import IllegalTransition


class TenantState(StrEnum):
    """Where a tenant is in its life."""

    ACTIVE = "active"
    SUSPENDED = "suspended"
    DELETING = "deleting"
    DELETED = "deleted"


class ConsentState(StrEnum):
    """Whether a consent still permits anything."""

    ACTIVE = "active"
    WITHDRAWN = "withdrawn"
    EXPIRED = "expired"
    DELETED = "deleted"


class VoiceState(StrEnum):
    """Where a voice is in its life; only a ready one speaks."""

    PENDING = "pending"
    READY = "ready"
    FAILED = "failed"
    DISABLED = "disabled"
    DELETING = "deleting"
    DELETED = "deleted"


class VersionState(StrEnum):
    """Where one version of a voice is in its enrolment."""

    PENDING = "pending"
    READY = "ready"
    FAILED = "failed"
    RETIRED = "retired"


class DeletionState(StrEnum):
    """How far a deletion is; a partial one is tried again."""

    RUNNING = "running"
    PARTIAL = "partial"
    DONE = "done"


State = TypeVar("State", bound=StrEnum)

TENANT_TRANSITIONS: Mapping[TenantState, frozenset[TenantState]] = {
    TenantState.ACTIVE: frozenset({TenantState.SUSPENDED, TenantState.DELETING}),
    TenantState.SUSPENDED: frozenset({TenantState.ACTIVE, TenantState.DELETING}),
    TenantState.DELETING: frozenset({TenantState.DELETED}),
    TenantState.DELETED: frozenset(),
}

CONSENT_TRANSITIONS: Mapping[ConsentState, frozenset[ConsentState]] = {
    ConsentState.ACTIVE: frozenset({ConsentState.WITHDRAWN, ConsentState.EXPIRED, ConsentState.DELETED}),
    ConsentState.WITHDRAWN: frozenset({ConsentState.DELETED}),
    ConsentState.EXPIRED: frozenset({ConsentState.DELETED}),
    ConsentState.DELETED: frozenset(),
}

VOICE_TRANSITIONS: Mapping[VoiceState, frozenset[VoiceState]] = {
    VoiceState.PENDING: frozenset({VoiceState.READY, VoiceState.FAILED, VoiceState.DELETING}),
    VoiceState.READY: frozenset({VoiceState.DISABLED, VoiceState.DELETING}),
    # A new recording is a new chance.
    VoiceState.FAILED: frozenset({VoiceState.PENDING, VoiceState.DELETING}),
    VoiceState.DISABLED: frozenset({VoiceState.READY, VoiceState.DELETING}),
    VoiceState.DELETING: frozenset({VoiceState.DELETED}),
    VoiceState.DELETED: frozenset(),
}

VERSION_TRANSITIONS: Mapping[VersionState, frozenset[VersionState]] = {
    VersionState.PENDING: frozenset({VersionState.READY, VersionState.FAILED}),
    VersionState.READY: frozenset({VersionState.RETIRED}),
    VersionState.FAILED: frozenset(),
    VersionState.RETIRED: frozenset(),
}

DELETION_TRANSITIONS: Mapping[DeletionState, frozenset[DeletionState]] = {
    DeletionState.RUNNING: frozenset({DeletionState.PARTIAL, DeletionState.DONE}),
    DeletionState.PARTIAL: frozenset({DeletionState.PARTIAL, DeletionState.DONE}),
    DeletionState.DONE: frozenset(),
}


def check_transition(
    machine: str, table: Mapping[State, frozenset[State]], current: State | None, wanted: State
) -> None:
    """Raises IllegalTransition unless the table has the step from `current` (None: nothing there) to `wanted`."""
    if current is None or wanted not in table[current]:
        raise IllegalTransition(machine, current or "nothing", wanted)
