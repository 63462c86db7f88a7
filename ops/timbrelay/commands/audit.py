"""`timbrelay audit`: whether the audit logs are as they were written, and what stands in them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from timbrelay.console import Bar, say, show_progress
from timbrelay.environment import Environment
from timbrelay.errors import OpsError
from timbrelay.evidence import Chain, find_chain, list_named_chains, open_database
from timbrelay.interruption import Interruption
from timbrelay.stack.local import open_servers
from timbrelay.stack.servers import Servers

if TYPE_CHECKING:
    from storage.database import Database
    from storage.evidence.audit import Entry
    from storage.evidence.chain import Verdict


def run_verify(environment: Environment, interruption: Interruption, tenant: str, as_json: bool) -> None:
    """Says of each log (of one tenant's, if one is named) whether it is sound; raises OpsError when one is not."""
    with open_servers(environment) as servers, show_progress("Verifying the audit logs") as bar:
        verdicts = interruption.run(_verify(servers, environment, tenant, bar))
    if as_json:
        chains = [_to_json(chain, verdict) for chain, verdict in verdicts]
        say(json.dumps({"sound": all(verdict.sound for _, verdict in verdicts), "chains": chains}, indent=2))
    else:
        for chain, verdict in verdicts:
            say(f"{chain.name}  {_describe(verdict)}")
    broken = [(chain, verdict) for chain, verdict in verdicts if not verdict.sound]
    if broken:
        chain, verdict = broken[0]
        raise OpsError(
            f"{len(broken)} of {len(verdicts)} audit logs are not as they were written. The first: {chain.name}, at "
            f"entry {verdict.sequence}, where {verdict.flaw}. Compare with a backup, and find out who had the database."
        )


def run_show(environment: Environment, interruption: Interruption, tenant: str, limit: int) -> None:
    """Prints the last entries of a tenant's log, or of the platform's, as JSON, one a line."""
    with open_servers(environment) as servers:
        entries = interruption.run(_show(servers, environment, tenant, limit))
    for entry in entries:
        say(json.dumps(_entry_to_json(entry)))


async def _verify(servers: Servers, environment: Environment, tenant: str, bar: Bar) -> list[tuple[Chain, Verdict]]:
    async with open_database(servers, environment) as database:
        if tenant:
            chain = await find_chain(database, tenant)
            return [(chain, await _verify_one(database, chain, bar))]
        return [(chain, await _verify_one(database, chain, bar)) async for chain in list_named_chains(database)]


async def _verify_one(database: Database, chain: Chain, bar: Bar) -> Verdict:
    from storage.evidence.audit import read_head
    from storage.evidence.chain import verify_chain
    from storage.evidence.checkpoints import find_heads
    from storage.evidence.signing import load_public_keys

    async with database.transaction(tenant=chain.tenant) as connection:
        total = (await read_head(connection, chain.tenant)).sequence
        heads = find_heads(connection, chain.tenant, await load_public_keys(connection))
        return await verify_chain(
            connection,
            chain.tenant,
            heads=heads,
            report=lambda sequence: bar.advance_to(sequence, max(total, sequence)),
        )


async def _show(servers: Servers, environment: Environment, tenant: str, limit: int) -> list[Entry]:
    from storage.evidence.audit import read_audit, read_head

    async with open_database(servers, environment) as database:
        chain = await find_chain(database, tenant)
        async with database.transaction(tenant=chain.tenant) as connection:
            head = await read_head(connection, chain.tenant)
            after = max(head.sequence - limit, 0)
            return await read_audit(connection, chain.tenant, after_sequence=after, limit=limit)


def _describe(verdict: Verdict) -> str:
    if not verdict.sound:
        return f"BROKEN at entry {verdict.sequence}: {verdict.flaw}"
    if not verdict.head.sequence:
        return "empty"
    signed = f"signed up to entry {verdict.signed}" if verdict.signed else "no head signed yet"
    return f"sound: {verdict.head.sequence} entries, {signed}, head {verdict.head.hash.hex()}"


def _to_json(chain: Chain, verdict: Verdict) -> dict[str, Any]:
    broken = {"sequence": verdict.sequence, "reason": str(verdict.flaw)} if not verdict.sound else None
    head = {"sequence": verdict.head.sequence, "hash": verdict.head.hash.hex()}
    told = {"tenant": str(chain.tenant), "name": chain.name, "head": head, "signed": verdict.signed}
    return {**told, "broken": broken}


def _entry_to_json(entry: Entry) -> dict[str, Any]:
    return {
        "sequence": entry.sequence,
        "at": entry.at.isoformat(),
        "actor": entry.actor,
        "action": entry.action,
        "object_kind": entry.object_kind,
        "object_id": entry.object_id,
        "origin": entry.origin,
        "detail": entry.detail,
        "hash": entry.hash.hex(),
    }
