"""Starts a relayer without keys on each of many folders, as another user if there is one, and says what it finds.

A program of its own: nobody may not read a file as root.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from millrace.chain.transaction import client_hash, from_proto
from millrace.gossip.identity import secret_key
from millrace.relayer.app import Service
from millrace.relayer.journal.fates import FatesUnavailable
from millrace.relayer.journal.identity import IdentityError
from millrace.relayer.journal.recovery import RecoveryError
from millrace.relayer.journal.replaceable import GOSSIP_KEY
from millrace.relayer.journal.submissions import Record
from millrace.relayer.journal.writer import JournalError, NonceTaken
from millrace.relayer.network.gossip_peer import Peer
from millrace.relayer.rules.policy import PolicyError
from millrace.relayer.settings import RelayerSettings
from millrace.relayer.statistics.history import HistoryUnavailable


class Case(msgspec.Struct):
    """A folder, and what is to be asked of it."""

    folder: str
    policy: str
    ended: str
    """Hash of a transaction that has ended."""
    second: bytes
    """Another payload of a nonce that was signed, protobuf form."""
    start_ms: int
    """The history is asked for from then on, …"""
    end_ms: int
    """… until then."""


async def seen(case: Case) -> dict[str, Any]:
    """What a start on the folder comes to."""
    settings = RelayerSettings(
        port=0, http_port=0, metrics_port=0, chain_id="local", hub_url="", chain_api_url="", gossip=False,
        data_dir=Path(case.folder), lease_dir=f"{case.folder}.leases", policy_file=case.policy,
    )  # fmt: skip
    service = Service(settings)
    try:
        await service.start()
        return await look(service, case)
    except (OSError, JournalError, IdentityError, RecoveryError, PolicyError) as error:
        return {"refused": str(error)}
    finally:
        await service.stop()


async def look(service: Service, case: Case) -> dict[str, Any]:
    """What a relayer that started knows."""
    tx = from_proto(case.second)
    second = Record(
        tx.sender, tx.nonce, client_hash(tx), None, case.second, "relay", tx.relayer, 10, None, "ip",
        time.time_ns() // 1_000_000, "journalled", True,
    )  # fmt: skip
    try:
        await service.journal.append([second])
        promise = "forgotten"
    except NonceTaken:
        promise = "kept"
    if service.fates.filling is not None:
        await service.fates.filling
    try:
        found = await service.lifecycle.fates.find(bytes.fromhex(case.ended))
        fate = None if found is None else [found[0].state, found[0].fee, found[0].nonce]
    except FatesUnavailable:
        fate = "not now"
    for _ in range(2):
        await service.history.add(time.time_ns() // 1_000_000, {"currentTps": 1.0})
    try:
        body = json.loads(await service.history.query(case.start_ms, case.end_ms, 1, 0))
        points: Any = {point["ts"]: point["probe"] for point in body["points"] if "probe" in point}
    except HistoryUnavailable:
        points = "not now"
    peer = Peer(service.settings, service.network, service.statistics, None)
    secret_key(str(Path(case.folder) / GOSSIP_KEY), "")
    recovered = service.safe_start.recovery
    return {
        "promise": promise,
        "fate": fate,
        "points": points,
        "fee": service.policy_keeper.whole.caps.fee,
        "ahead": None if recovered is None else recovered.ahead,
        "aside": service.history.put_aside + service.fates.put_aside + peer.keys_put_aside,
        "damaged": service.history.left_out + service.fates.damaged,
    }


async def main(cases: list[Case]) -> None:
    """One after the other."""
    logging.disable()
    print(json.dumps([await seen(case) for case in cases]))


if __name__ == "__main__":
    if user := int(sys.argv[1]):
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    asyncio.run(main(msgspec.json.decode(sys.stdin.buffer.read(), type=list[Case])))
