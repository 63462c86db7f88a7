"""What a tenant's state forbids its keys, and in which words they are told."""

from __future__ import annotations

from collections.abc import Mapping

from relay.errors import RequestRefused, Unauthorized
from storage.states import TenantState
from storage.tenancy.api_keys import Caller, Deed

_REFUSALS: Mapping[TenantState, tuple[int, str, str]] = {
    TenantState.SUSPENDED: (
        403,
        "tenant_suspended",
        "the tenant is suspended: its keys can read, export, delete voices, withdraw consents and revoke keys, and "
        "nothing else; ask the operator of this service to let the tenant in again",
    ),
    TenantState.DELETING: (409, "wrong_state", "the tenant is being deleted; nothing of it is made or changed"),
}


def check_permitted(caller: Caller, deed: Deed) -> None:
    """Raises RequestRefused when the state of the caller's tenant does not permit this (`api_keys.PERMITS`)."""
    if caller.may(deed):
        return
    if caller.tenant_state not in _REFUSALS:
        raise Unauthorized
    status, code, text = _REFUSALS[caller.tenant_state]
    raise RequestRefused(status, code, text)
