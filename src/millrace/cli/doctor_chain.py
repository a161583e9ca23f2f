"""What the doctor asks of the chain: whether its API answers, which chain it is, how far it lags, what keys hold."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from millrace.chain.times import milliseconds
from millrace.cli import findings
from millrace.cli.findings import BLOCK_SECONDS, CLOCK_SECONDS, Finding
from millrace.cli.shown import units

_MOST_SHARDS = 16


def of_chain(
    url: str, chain_id: str | None = None, keys: Mapping[int, str] | None = None, alert_balance: int = 0
) -> Iterator[Finding]:
    """Findings of a chain API. `chain_id` is the services' own, `keys` the relayer's by shard (bech32)."""
    answer = findings.asked(url, "/network/config")
    if isinstance(answer, str):
        text = f"{url} cannot be reached ({answer})"
        remedy = "correct chain_api_url; without it unknown accounts are refused, and gossip is the only way out"
        yield Finding("fault", "chain API", text, remedy)
        return
    config = _inner(answer.body, "config")
    told = config.get("erd_chain_id")
    if told is None:
        text = f"{url}/network/config names no chain (HTTP {answer.status})"
        yield Finding("fault", "chain API", text, "name a gateway or chain API, without a path behind it")
        return
    if chain_id not in (None, told):
        text = f"{url} is of chain {told}, and the services are set for {chain_id}"
        yield Finding("fault", "chain API", text, "set profile (or chain_id) and chain_api_url for the same chain")
    else:
        yield Finding("ok", "chain API", f"{url} answers, chain {told}")
    shards = config.get("erd_num_shards_without_meta")
    for shard in range(min(shards, _MOST_SHARDS) if isinstance(shards, int) else 0):
        yield from _of_shard(url, shard)
    for shard, address in sorted((keys or {}).items()):
        yield from _of_balance(url, shard, address, alert_balance)


def _inner(body: dict[str, Any], name: str) -> dict[str, Any]:
    """What is in a gateway's envelope."""
    data = body.get("data")
    found = data.get(name) if isinstance(data, dict) else None
    return found if isinstance(found, dict) else {}


def _of_shard(url: str, shard: int) -> Iterator[Finding]:
    answer = findings.asked(url, f"/network/status/{shard}")
    status = {} if isinstance(answer, str) else _inner(answer.body, "status")
    stamp = status.get("erd_block_timestamp_ms") or status.get("erd_block_timestamp")
    if not isinstance(stamp, int):
        text = f"{url} says nothing of shard {shard}"
        yield Finding("warning", "node lag", text, "see that its node of that shard runs, or use another chain API")
        return
    age = time.time() - milliseconds(stamp) / 1000
    if age > BLOCK_SECONDS:
        text = f"the newest block of shard {shard} that {url} has is {age:.0f} s old"
        yield Finding("fault", "node lag", text, "see that its node is in sync (its erd_is_syncing), or use another")
    elif age < -CLOCK_SECONDS:
        text = f"the newest block of shard {shard} is {-age:.0f} s ahead of this machine's clock"
        yield Finding("fault", "clock", text, "set it by NTP: timedatectl set-ntp true")


def _of_balance(url: str, shard: int, address: str, alert_balance: int) -> Iterator[Finding]:
    answer = findings.asked(url, f"/accounts/{address}")
    told = None if isinstance(answer, str) else answer.body.get("balance")
    if not (isinstance(told, str) and told.isdigit()):
        text = f"{url} does not say what {address} holds"
        yield Finding("warning", f"balance of shard {shard}", text, "use a chain API that answers /accounts/{address}")
    elif int(told) < alert_balance:
        text = f"{address} holds {units(int(told), 18)} EGLD, below alert_balance ({units(alert_balance, 18)})"
        yield Finding("fault", f"balance of shard {shard}", text, f"send EGLD to {address}")
    else:
        yield Finding("ok", f"balance of shard {shard}", f"{address} holds {units(int(told), 18)} EGLD")
