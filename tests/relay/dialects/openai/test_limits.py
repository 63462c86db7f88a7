"""What a tenant may not have any more: 429 in OpenAI's shape, and when to come back."""

from __future__ import annotations

from typing import Any

import pytest

from storage.database import Database
from storage.tenancy.limits import Limits
from storage.tenancy.tenants import change_tenant
from tests.conftest import RunningStack
from tests.relay.dialects.openai.conftest import PATH, Speaking, knock

ONE_STACK = True


@pytest.mark.parametrize(
    ("limits", "code", "again"),
    [
        ({"requests_per_minute": 0}, "rate_limit_exceeded", True),
        ({"contexts": 0}, "too_many_contexts", True),
        ({"characters_per_day": 3}, "insufficient_quota", False),
    ],
)
async def test_too_much_is_refused_with_a_time_to_come_back(
    limits: dict[str, Any], code: str, again: bool, stack: RunningStack, acme: Speaking, database: Database
) -> None:
    """What is over for today is not tried again by the SDK, although it would like to."""
    async with database.transaction(operator=True) as connection:
        await change_tenant(connection, acme.tenant.id, limits=Limits(**limits))
    async with knock(stack, acme.tenant) as http:
        answer = await http.post(PATH, json={"input": "Hello there.", "voice": acme.voice})
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, code), answer.text
    assert int(answer.headers["retry-after"]) > 0
    assert (answer.headers.get("x-should-retry") == "false") is not again
