"""What became of transactions by the nodes alone, by the rules of the public gateway's `process-status`."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.foreign.node.network import SHARDS, Nodes

Answer = dict[str, Any]
FAILURES = ("signalError", "internalVMErrors")
ENDS = ("completedTxEvent", "SCDeploy")
REFUND = "gas refund for relayer"


class Fate(NamedTuple):
    """What became of a transaction, and what it cost."""

    status: str
    fee: int
    """By the sender's node."""


async def fate(nodes: Nodes, tx_hash: str) -> Fate:
    """Of one transaction, all shards asked."""
    seen = await _everywhere(nodes, tx_hash)
    assert seen, f"no node knows {tx_hash}"
    source = next((answer for shard, answer in seen.items() if shard == answer["sourceShard"]), None)
    assert source is not None, f"the sender's node does not know {tx_hash}"
    return Fate(await _status(nodes, seen), int(source["fee"]))


async def _everywhere(nodes: Nodes, tx_hash: str) -> dict[int, Answer]:
    answers = {shard: await nodes.transaction(shard, tx_hash) for shard in SHARDS}
    return {shard: answer for shard, answer in answers.items() if answer is not None}


async def _status(nodes: Nodes, seen: dict[int, Answer]) -> str:
    any_of_them = next(iter(seen.values()))
    if any(answer["status"] == "invalid" for answer in seen.values()):
        return "fail"
    if _is_pending(seen):
        return "pending"
    if all(_is_move(answer) for answer in seen.values()):
        return "success"
    logs = [answer.get("logs") for answer in seen.values()]
    if _have(logs, FAILURES):
        return "fail"
    results = {result["hash"]: result for answer in seen.values() for result in answer.get("smartContractResults", ())}
    for result_hash in list(results):
        told = await _everywhere(nodes, result_hash)
        if _is_pending(told):
            return "pending"
        logs += [answer.get("logs") for answer in told.values()]
    if _have(logs, FAILURES) or any(_is_error(result) for result in results.values()):
        return "fail"
    is_relayed = any_of_them["processingTypeOnSource"] == any_of_them["processingTypeOnDestination"] == "RelayedTxV3"
    return "success" if _have(logs, ENDS) or is_relayed else "pending"


def _is_pending(seen: dict[int, Answer]) -> bool:
    """Whether the node that has the last word has yet to execute it."""
    last = seen.get(next(iter(seen.values()))["destinationShard"])
    return last is None or last["status"] != "success"


def _is_move(answer: Answer) -> bool:
    return answer["processingTypeOnSource"] == answer["processingTypeOnDestination"] == "MoveBalance"


def _have(logs: list[Answer | None], identifiers: tuple[str, ...]) -> bool:
    return any(event["identifier"] in identifiers for log in logs if log for event in log["events"])


def _is_error(result: Answer) -> bool:
    return bool(result.get("returnMessage")) and result["returnMessage"] != REFUND and int(result["value"]) == 0
