"""Faces that a test drives, and clients of the dialect."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from tests.conftest import RunningStack
from tests.relay.dialects.conftest import Speaking as Speaking
from tests.relay.dialects.elevenlabs.desk import Desk, open_multi, open_stream
from tests.system.conftest import embed as embed

Http = httpx2.AsyncClient


@pytest.fixture
def multi() -> Desk:
    """A `multi-stream-input` on which nothing was said yet."""
    return open_multi()


@pytest.fixture
def stream() -> Desk:
    """A `stream-input` on which nothing was said yet."""
    return open_stream()


@pytest.fixture(scope="module")
def stack_settings() -> dict[str, Any]:
    """A minute of speech does not take one."""
    return {"run_ahead_ms": 600_000}


@pytest.fixture
async def http(stack: RunningStack, acme: Speaking) -> AsyncIterator[Http]:
    """The tenant's client, with the dialect's base URL."""
    headers = {"xi-api-key": acme.tenant.key}
    async with httpx2.AsyncClient(base_url=f"{stack.relay_url}/elevenlabs", headers=headers, timeout=30) as client:
        yield client
