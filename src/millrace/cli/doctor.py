"""`millrace doctor`: what is wrong with the services, and with this machine if it runs them; each with what to do."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from millrace.cli import findings
from millrace.cli.ask import USUAL_AGGREGATOR, USUAL_RELAYER, Ended, aggregator_option, gateway_option, relayer_option
from millrace.cli.doctor_chain import of_chain
from millrace.cli.doctor_machine import of_this_machine
from millrace.cli.findings import BLOCK_SECONDS, CLOCK_SECONDS, Finding, Grade
from millrace.runtime.terminal import say

_SIGNS: dict[Grade, str] = {"ok": "✓", "warning": "!", "fault": "✗"}
USUAL_NOTIFIER = "http://127.0.0.1:8301"
LAG_EVENTS = 200
"""Events that the relayer may be behind the hub: some ten seconds of three shards."""


@click.command()
@aggregator_option
@relayer_option
@click.option(
    "--notifier",
    envvar="MILLRACE_NOTIFIER_URL",
    show_default=f"{USUAL_NOTIFIER}, beside services at their usual addresses",
    show_envvar=True,
    help="Its HTTP address; empty: none is yours.",
)
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The services' settings: then this machine is looked at, too.",
)
@gateway_option
@click.option("--here", is_flag=True, help="Look at this machine with the default settings.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def doctor(
    aggregator: str,
    relayer: str,
    notifier: str | None,
    gateway: str | None,
    file: Path | None,
    here: bool,
    as_json: bool,
) -> None:
    """Look for what is wrong, and say what to do about it.

    Services: reachability, versions, clocks, networks, snapshots, hub, journal,
    signer, keys and their funds, peers, blocks. The chain (--gateway): which,
    and how far its nodes lag. This machine (--config, --here): settings, keys,
    their shards and balances, data directory and journal, disk, files, policy,
    chain API.

    \b
    Exit codes: 0 nothing is wrong (there may be warnings); 1 something is;
    2 wrong use.
    """
    if notifier is None and (aggregator, relayer) == (USUAL_AGGREGATOR, USUAL_RELAYER):
        notifier = USUAL_NOTIFIER
    found = [*of_services(aggregator, relayer, notifier)]
    if gateway:
        found += of_chain(gateway)
    if file is not None or here:
        found += of_this_machine(file)
    if as_json:
        click.echo(json.dumps([finding._asdict() for finding in found], indent=2))
    else:
        for finding in found:
            say(f"{_SIGNS[finding.grade]} {finding.subject}: {finding.text}", indent=2)
            if finding.remedy:
                say(f"    → {finding.remedy}", indent=6)
    faults = sum(finding.grade == "fault" for finding in found)
    if faults:
        raise Ended(f"{faults} of {len(found)} findings are faults")


# ---- services


def of_services(aggregator: str, relayer: str, notifier: str | None) -> Iterator[Finding]:
    """What the services say of themselves. `notifier`: empty where none is theirs, None where nobody said."""
    yield from _reached("aggregator", aggregator, "/health", _of_aggregator)
    yield from _reached("relayer", relayer, "/health", _of_relayer)
    yield from _reached("relayer's keys", relayer, "/ready", _of_keys, is_known=True)
    yield from _reached("peers", relayer, "/v1/network-stats/history?resolution=1", _of_peers, is_known=True)
    yield from _of_networks(aggregator, relayer)
    if notifier is None:
        yield Finding("warning", "notifier", "not looked at: nobody said where it is", "name it: --notifier URL")
    elif notifier:
        yield from _reached("notifier", notifier, "/ready", _of_notifier)


def _reached(name: str, url: str, path: str, look: Any, *, is_known: bool = False) -> Iterable[Finding]:
    """The findings of one answer; where there is none, that is the finding, unless it is known already."""
    answer = findings.asked(url, path)
    if isinstance(answer, str):
        text = f"{url} cannot be reached ({answer})"
        return [] if is_known else [Finding("fault", name, text, "start it, or correct its address")]
    if not answer.body:
        return [
            Finding("fault", name, f"{url}{path} answers no JSON object", "something else listens there: correct it")
        ]
    found = list(look(answer.body))
    return found if is_known else [*_of_clock(name, answer.date), *_of_version(name, answer.body), *found]


def _of_clock(name: str, date: str | None) -> Iterator[Finding]:
    from datetime import UTC, datetime
    from email.utils import parsedate_to_datetime

    try:
        told = parsedate_to_datetime(date or "")
    except ValueError:
        return
    apart = abs((datetime.now(UTC) - told).total_seconds())
    if apart > CLOCK_SECONDS:
        text = f"its clock and this machine's are {apart:.0f} s apart"
        yield Finding("fault", f"{name}'s clock", text, "set both by NTP: timedatectl set-ntp true")


def _of_version(name: str, body: dict[str, Any]) -> Iterator[Finding]:
    """Another version than this command's; services that tell none are older, or not millrace."""
    from millrace.runtime.version import version

    theirs, ours = body.get("serviceVersion"), version()
    if theirs is not None and theirs != ours:
        text = f"it is version {theirs}, and this command is {ours}"
        yield Finding("warning", f"{name}'s version", text, "install the same on both; what they mean may differ")


def _of_aggregator(health: dict[str, Any]) -> Iterator[Finding]:
    status, age = health.get("status"), health.get("snapshotAgeSeconds")
    if status == "ok":
        yield Finding("ok", "aggregator", f"{health.get('pools')} pools, {health.get('tokens')} tokens, {age} s old")
    else:
        error = health.get("lastError") or "no document has come yet"
        remedy = f"see that {health.get('source')} answers a pool document"
        yield Finding("fault", "aggregator", f"its market is {status}: {error}", remedy)
    if health.get("quarantined"):
        text = f"{health['quarantined']} pools or tokens are left out"
        yield Finding("warning", "aggregator", text, "/health names them, each with its reason")


def _of_relayer(health: dict[str, Any]) -> Iterator[Finding]:
    hub = health.get("hub") or {}
    if not hub.get("connected"):
        yield Finding("fault", "relayer", "it has no connection to the hub", "start the notifier, or correct hub_url")
    lag = (hub.get("head") or 0) - (hub.get("last") or 0)
    if hub.get("connected") and lag > LAG_EVENTS:
        yield Finding("fault", "relayer", f"it is {lag} events behind the hub", "give it more processor, then wait")
    if health.get("journal") != "ok":
        text = f"its journal fails: {health.get('journal')}"
        yield Finding("fault", "relayer", text, "free its disk; see Memory in docs/relayer-operating.md")
    if health.get("role") == "edge":
        yield from _of_signers(health.get("signers") or {})
    elif health.get("signer") is False:
        yield Finding("fault", "relayer", "no signing process", "see its log; set key_files if it is to pay")
    if health.get("sponsoring") != "ok":
        remedy = "see Policy in docs/relayer-operating.md"
        yield Finding("fault", "relayer", f"it sponsors nothing: {health.get('sponsoring')}", remedy)
    if health.get("execution", "ok") != "ok":
        remedy = "see RelayerExecutionLags in docs/runbooks.md"
        yield Finding("fault", "relayer", f"results do not come: {health['execution']}", remedy)
    if problem := (health.get("round") or {}).get("problem"):
        yield Finding("warning", "relayer", problem, "correct chain_api_url, or set round_ms")
    if health.get("gossip") == "not installed":
        from millrace.runtime import extras

        text = "it has no gossip: transactions go through chain_api_url"
        yield Finding("warning", "relayer", text, f"for gossip: {extras.remedy('gossip')}")
    if health.get("status") == "ok":
        text = f"ready, {health.get('inFlight')} in flight, {health.get('connections')} connections"
        yield Finding("ok", "relayer", text)


def _of_signers(states: dict[str, str]) -> Iterator[Finding]:
    """Those an edge forwards to: it has no signing process of its own."""
    answered = "ok" in states.values()
    for url, state in sorted(states.items()):
        if state == "ok" or (state == "stands by" and answered):
            continue
        grade: Grade = "warning" if state == "away" and answered else "fault"
        remedy = "ask its operators' port for /health; see docs/edges.md"
        yield Finding(grade, f"relayer at {url}", f"an edge finds it {state}", remedy)


def _of_keys(ready: dict[str, Any]) -> Iterator[Finding]:
    for shard, key in sorted((ready.get("relayers") or {}).items()):
        if key.get("state") == "ok":
            yield Finding("ok", f"key of shard {shard}", f"{key.get('address')} pays")
            continue
        missing = int(key.get("missing") or 0) / 10**18
        remedy = f"send at least {missing:.6g} EGLD to {key.get('address')}" if missing else "see the relayer's log"
        yield Finding("fault", f"key of shard {shard}", f"{key.get('address')}: {key.get('state')}", remedy)


def _of_peers(history: dict[str, Any]) -> Iterator[Finding]:
    points = [point for point in history.get("points") or [] if point.get("connectedPeers") is not None]
    if not points:
        return
    peers = int(points[-1]["connectedPeers"])
    if peers:
        yield Finding("ok", "peers", f"{peers} connected")
    else:
        remedy = "set gossip_bootstrap; until then transactions go through chain_api_url"
        yield Finding("warning", "peers", "none is connected", remedy)


def _of_networks(aggregator: str, relayer: str) -> Iterator[Finding]:
    ours, theirs = findings.asked(aggregator, "/api/v1/config"), findings.asked(relayer, "/v1/relayers")
    if isinstance(ours, str) or isinstance(theirs, str):
        return
    first, second = ours.body.get("chainID"), theirs.body.get("chainId")
    if first and second and first != second:
        text = f"the aggregator is on chain {first}, the relayer on {second}"
        yield Finding("fault", "network", text, "set the same chain_id (or profile) in both")


def _of_notifier(ready: dict[str, Any]) -> Iterator[Finding]:
    for shard, seconds in sorted((ready.get("secondsSinceBlock") or {}).items()):
        if seconds is not None and seconds > BLOCK_SECONDS:
            name = "the metachain" if int(shard) > 255 else f"shard {shard}"
            remedy = "see that an observer of it runs, is in sync, and connects to /save"
            yield Finding("fault", "nodes", f"no block of {name} for {seconds:.0f} s", remedy)
    if ready.get("status") == "ready":
        yield Finding("ok", "notifier", f"{ready.get('nodes')} nodes, {ready.get('consumers')} consumers")
    else:
        reasons = ", ".join(map(str, ready.get("reasons") or ["it gives no reason"]))
        yield Finding("fault", "notifier", f"not ready: {reasons}", "see Operators in docs/notifier.md")
