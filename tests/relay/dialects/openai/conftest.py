"""Clients of the dialect."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest

from tests.conftest import RunningStack, Tenant
from tests.relay.dialects.conftest import Speaking as Speaking

Http = httpx2.AsyncClient
PATH = "/openai/v1/audio/speech"


@pytest.fixture
async def http(stack: RunningStack, acme: Speaking) -> AsyncIterator[Http]:
    """The tenant's client of the dialect."""
    async with knock(stack, acme.tenant) as client:
        yield client


@asynccontextmanager
async def knock(stack: RunningStack, tenant: Tenant) -> AsyncIterator[Http]:
    """A tenant's client."""
    headers = {"Authorization": f"Bearer {tenant.key}"}
    async with httpx2.AsyncClient(base_url=stack.relay_url, headers=headers, timeout=30) as client:
        yield client


def count_contexts(stack: RunningStack) -> float:
    """How many contexts are open, as the relay says."""
    lines = httpx2.get(f"{stack.metrics_urls['relay']}/metrics").text.splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("timbrelay_contexts ")))
