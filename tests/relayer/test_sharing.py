"""Several relayers with the same keys and one PostgreSQL server: one payload a nonce, one budget, every end found."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from relayer_edges import Line
from relayer_support import (
    RELAYERS,
    BlockMaker,
    as_json,
    connected,
    raw,
    settings,
    submit,
    transfer,
    wallet,
    with_identity,
)

from millrace.chain.address import encode
from millrace.chain.transaction import chain_hash, client_hash, signing_message
from millrace.relayer.app import Service
from millrace.relayer.journal import reconcile
from millrace.relayer.journal.identity import JOURNAL
from millrace.relayer.journal.portions import Portions
from millrace.relayer.journal.postgres_leases import PostgresLeases
from millrace.relayer.journal.seats import Seats
from millrace.relayer.journal.sharing import Sharing
from millrace.relayer.journal.writer import JournalError
from millrace.relayer.network import account_source
from millrace.relayer.protocol import reasons
from millrace.relayer.rules.policy_file import seal
from millrace.relayer.rules.stages import Kind, Origin
from millrace.relayer.signing.handle import SignerError
from millrace.relayer.submission.batch import Accepted
from millrace.runtime.postgres import Refused, Unavailable
from millrace.runtime.process import wait_first
from millrace.runtime.settings import Secret
from millrace.system.ports import free_ports
from relayer.conftest import Front
from servers.postgres import Postgres
from waiting import until

ALICE = wallet(1)
SECONDS = 3.5
"""Of leases: what tests wait for when one is to end."""


class Relayer:
    """One of several relayers of a world, in this event loop; `service` as `submit` looks for it."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.stop = asyncio.Event()
        self.running = asyncio.create_task(wait_first(self.stop, *service.endless()))

    async def end(self) -> None:
        self.stop.set()
        await asyncio.gather(self.running, return_exceptions=True)
        await self.service.stop()

    async def die(self) -> None:
        """What a process that is killed leaves: its seat, and whatever it had not told."""
        sharing = self.service.sharing
        assert sharing is not None

        async def unheard(*_: Any) -> Any:
            raise Unavailable("it is dead")

        for word in ("claim", "renew", "leave"):
            setattr(sharing._seats, word, unheard)
        await self.end()


class Several:
    """Relayers that share, and what is around them."""

    def __init__(self, world: Any, folder: Path, url: str) -> None:
        self.world = world
        self.folder = folder
        self.values: dict[str, Any] = {
            "claims_url": Secret(url), "claims_schema": folder.name,
            "lease_schema": f"{folder.name}_leases", "lease_seconds": SECONDS, "signer_timeout": 1.0,
        }  # fmt: skip
        self.all: list[Relayer] = []

    async def start(self, name: str, **changes: Any) -> Relayer:
        if not self.world.urls:
            self.world.urls = {
                "hub_url": f"ws://127.0.0.1:{await self.world.hub.start()}/hub/ws",
                "chain_api_url": await self.world.api.start(),
            }
        folder = with_identity(self.folder / name)
        values = self.values | self.world.urls | {"data_dir": folder} | changes
        service = Service(settings(self.folder, **values))
        try:
            async with asyncio.timeout(30):
                await service.start()
        except BaseException:
            await service.stop()
            raise
        self.all.append(Relayer(service))
        if self.world.hub.server is not None:
            await self.heard(self.all[-1], 0)
            async with asyncio.timeout(10):  # a lease may have ended during a slow start: it signs when that is renewed
                while service.lifecycle.sponsor.why_not() is not None:
                    await asyncio.sleep(0.005)
        return self.all[-1]

    async def heard(self, relayer: Relayer, sequence: int) -> None:
        """Wait until it reads the hub's events, and has read up to this one."""
        async with asyncio.timeout(10):
            while not relayer.service.hub.connected or (relayer.service.hub.last or 0) < sequence:
                await asyncio.sleep(0.005)


@pytest.fixture
async def several(world: Any, tmp_path: Path, postgres: Postgres) -> AsyncIterator[Several]:
    """None of them runs yet."""
    made = Several(world, tmp_path, postgres.url)
    for pair in RELAYERS.values():
        world.api.set(pair.public, 0, 10**21)  # each leaves the others' part of it alone
    try:
        yield made
    finally:
        for relayer in made.all:
            await relayer.end()


async def test_row_10_two_relayers_sign_one_payload_for_a_nonce(several: Several) -> None:
    """Both are asked for each of two payloads at the same moment: one wins, and both say so ever after."""
    one, two = await several.start("one"), await several.start("two")
    for nonce in range(8):
        first, second = transfer(ALICE, nonce), transfer(ALICE, nonce, gas_limit=200_000)
        asked = [(one, first), (two, second)] if nonce % 2 else [(two, first), (one, second)]
        answers = await asyncio.gather(*(submit(relayer, tx) for relayer, tx in asked))
        assert sorted(answer for (answer,) in answers) == ["conflicting transaction", "ok"]
        (won,) = [tx for (_, tx), answer in zip(asked, answers, strict=True) if answer == ["ok"]]
        for relayer in (one, two):
            assert (await submit(relayer, won))[0] in ("ok", "pending")
            assert await submit(relayer, first if won is second else second) == ["conflicting transaction"]


async def test_a_sender_goes_on_with_any_of_them(several: Several) -> None:
    """What others have in flight counts: nonces follow each other, whichever relayer is asked for the next one."""
    relayers = [await several.start("one"), await several.start("two")]
    for nonce in range(6):
        assert await submit(relayers[nonce % 2], transfer(ALICE, nonce)) == ["ok"]
    assert await submit(relayers[1], transfer(ALICE, 7)) == ["nonce too high"]
    api = several.world.api
    api.set(ALICE.public, 0, 5)
    poor = wallet(1, 3)
    api.set(poor.public, 0, 5)
    assert await submit(relayers[0], transfer(poor, 0, value=3)) == ["ok"]
    assert await submit(relayers[1], transfer(poor, 1, value=3)) == ["insufficient balance"]
    assert await submit(relayers[1], transfer(poor, 1, value=2)) == ["ok"]
    assert await submit(relayers[1], transfer(poor, 0, value=3)) == ["pending"], "its own cost is not in its way"
    lone = wallet(1, 6)
    api.set(lone.public, 0, 5)
    relayers[1].service.lifecycle.inflight.know_elsewhere(lone.public, {1: 5})  # which was let go of since then
    assert await submit(relayers[1], transfer(lone, 0, value=3)) == ["ok"]


async def test_who_takes_a_seat_finds_the_ends_of_what_was_accepted(several: Several) -> None:
    """A relayer dies; another one with an empty folder takes its seat, sends the same bytes and hears of their end."""
    one = await several.start("one", claims_seats=1)
    txs = [transfer(ALICE, nonce) for nonce in range(3)]
    assert await submit(one, *txs) == ["ok"] * 3
    sent = {item["relayerSignature"] for item in await several.world.api.wait_submitted(3)}
    await one.die()
    two = await several.start("two", claims_seats=1)
    entries = two.service.lifecycle.inflight.entries()
    assert {entry.tx.relayer_signature.hex() for entry in entries} == sent and all(entry.sending for entry in entries)
    assert two.service.lifecycle.sponsor.budgets.at_risk(RELAYERS[1].public) == sum(entry.fee for entry in entries)
    assert await submit(two, transfer(ALICE, 0, gas_limit=200_000)) == ["conflicting transaction"]
    maker = BlockMaker(1)
    several.world.hub.save(maker.block([entry.tx for entry in entries], accounts={ALICE.public: (3, 10**18)}))
    await several.world.hub.acknowledged(2)
    assert not two.service.lifecycle.inflight.entries()
    assert two.service.lifecycle.sponsor.budgets.at_risk(RELAYERS[1].public) == 0
    await two.end()
    again = await several.start("three", claims_seats=1)
    assert not again.service.lifecycle.inflight.entries()
    spent = again.service.lifecycle.sponsor.budgets.standing(RELAYERS[1].public, asyncio.get_running_loop().time())
    assert spent.spent_day == 3 * 50_000 * 10**9, "what blocks said of fees is known to the next one"


async def test_who_is_cut_off_from_the_claims_gets_nothing_from_edges(
    several: Several, tmp_path: Path, postgres: Postgres
) -> None:
    """The way from one of two relayers to the server goes silent: the other one serves all clients of an edge."""
    line = Line(postgres.port)
    through = (await line.start()).removeprefix("ws://")
    url = postgres.url.replace(f"127.0.0.1:{postgres.port}", through)
    edges, front = ("127.0.0.0/8",), Front(tmp_path / "edge")
    relayers = [
        await several.start("one", edges=edges, claims_url=Secret(url)),
        await several.start("two", edges=edges),
    ]
    places = [f"ws://127.0.0.1:{relayer.service.port}" for relayer in relayers]
    try:
        edge = await front.start(places, chain_api_url=several.world.urls["chain_api_url"])
        assert edge.signers is not None
        line.loses_up = line.loses_down = True
        async with asyncio.timeout(20):
            while edge.signers.state() != {places[0]: "not ready", places[1]: "ok"}:
                await asyncio.sleep(0.01)
        async with connected(front.ws) as client:
            asked = [client.ask(action="relay", tx=as_json(transfer(wallet(1, number)))) for number in range(20)]
            async with asyncio.timeout(5):
                assert [(await reply)["status"] for reply in asked] == ["completed"] * 20
    finally:
        await front.stop()
        await line.stop()


async def looked_at(port: int, path: str) -> tuple[int, str]:
    """What an operators' port answers; 0 of one that does not."""
    try:
        async with aiohttp.request("GET", f"http://127.0.0.1:{port}/{path}") as answer:
            return answer.status, await answer.text()
    except aiohttp.ClientConnectionError:
        return 0, ""


async def test_who_stands_by_says_so_to_operators(several: Several) -> None:
    """Its operators' port answers from the beginning: alive, standing by and not ready; with a seat it is as any."""
    one = await several.start("one", claims_seats=1)
    _, metrics = await looked_at(one.service.metrics_port, "metrics")
    assert "relayer_standing_by 0.0" in metrics and "relayer_ready 1.0" in metrics
    (port,) = free_ports(1)
    starting = asyncio.create_task(several.start("two", claims_seats=1, metrics_port=port))
    try:
        async with asyncio.timeout(10):
            while "relayer_standing_by 1.0" not in (await looked_at(port, "metrics"))[1]:
                assert not starting.done()
                await asyncio.sleep(0.005)
        _, metrics = await looked_at(port, "metrics")
        assert "relayer_ready 0.0" in metrics and "process_start_time_seconds" in metrics
        status, health = await looked_at(port, "health")
        assert status == 200 and json.loads(health) | {
            "status": "standing by", "role": "relayer", "signer": False, "sponsoring": "stands by: all seats are taken"
        } == json.loads(health)  # fmt: skip
        status, ready = await looked_at(port, "ready")
        assert (status, json.loads(ready)) == (503, {"ready": False, "relayers": {}})
    finally:
        await one.end()
        two = await starting
    assert two.service.metrics_port == port
    _, metrics = await looked_at(port, "metrics")
    assert "relayer_standing_by 0.0" in metrics and "relayer_lease_seconds_left" in metrics


async def test_a_copied_folder_stands_by_beside_the_other(several: Several, tmp_path: Path) -> None:
    """Neither knows what the other signs: the copy says so, as a fault, and has the seat when the other is gone."""
    one = await several.start("one")
    await one.end()
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    one = await several.start("one")
    (port,) = free_ports(1)
    starting = asyncio.create_task(several.start("copy", metrics_port=port))

    async def waits() -> bool:
        assert not starting.done()
        return "a copy of this folder" in (await looked_at(port, "health"))[1]

    try:
        await until(waits)
        assert json.loads((await looked_at(port, "health"))[1])["status"] == "degraded"
        assert "relayer_standing_by 0.0" in (await looked_at(port, "metrics"))[1], "else it had no alarm"
        assert await submit(one, transfer(ALICE, 0)) == ["ok"]
        await one.end()
        copy = await starting
        (entry,) = copy.service.lifecycle.inflight.entries()
        assert entry.client_hash == client_hash(transfer(ALICE, 0))
    finally:
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)


async def test_who_waits_for_the_claims_server_does_not_stand_by(several: Several) -> None:
    """Of a server that does not answer nobody could take a seat: alive, but neither standing by nor ready."""
    (nobody, port) = free_ports(2)
    url = Secret(f"postgresql://millrace:none@127.0.0.1:{nobody}/postgres")
    starting = asyncio.create_task(several.start("one", claims_url=url, metrics_port=port))
    try:
        async with asyncio.timeout(10):
            while "the claims' server" not in (await looked_at(port, "health"))[1]:
                assert not starting.done()
                await asyncio.sleep(0.005)
        _, metrics = await looked_at(port, "metrics")
        assert "relayer_standing_by 0.0" in metrics and "relayer_ready 0.0" in metrics
        assert json.loads((await looked_at(port, "health"))[1])["status"] == "degraded"
    finally:
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
    assert await looked_at(port, "health") == (0, "")


@pytest.mark.parametrize("tells", [True, False])
async def test_who_takes_the_seat_of_one_that_was_killed_at_once_knows_what_it_did_not_hear(
    several: Several, monkeypatch: pytest.MonkeyPatch, tells: bool
) -> None:
    """Where reading began is on the server before the first claim; of an earlier version, that did not, it is lost."""
    if not tells:
        monkeypatch.setattr(Sharing, "keep_cursor", lambda *_: None)
    hub, maker = several.world.hub, BlockMaker(1)
    one = await several.start("one", claims_seats=1)
    txs = [transfer(ALICE, nonce) for nonce in range(3)]
    assert await submit(one, *txs) == ["ok"] * 3
    await several.world.api.wait_submitted(3)
    entries = one.service.lifecycle.inflight.entries()
    await one.die()
    hub.save(maker.block([entry.tx for entry in entries], accounts={ALICE.public: (3, 10**18)}))
    monkeypatch.undo()
    two = await several.start("two", claims_seats=1)
    await several.heard(two, 2)
    assert len(two.service.lifecycle.inflight.entries()) == (0 if tells else 3)
    assert two.service.events.gaps == (not tells), "what was open is followed as what lost events may have ended"


@pytest.fixture
def each_keeps_its_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody gives and nobody takes: on a busy machine who asks last finds that the others took most of its part."""
    monkeypatch.setattr(Portions, "settle", lambda _: False)


@pytest.mark.usefixtures("each_keeps_its_part")
async def test_together_they_keep_to_one_budget(several: Several) -> None:
    """Of what may be at risk each has its part, and no further transaction gets beyond it."""
    fee = 100_000 * 10**9
    policy = several.folder / "policy.toml"
    policy.write_text(
        seal(f"[budget]\nat_risk = {5 * fee}\n[strangers]\naddress_percent = 100\nreceiver_percent = 100\n")
    )
    relayers = [await several.start(name, policy_file=str(policy)) for name in ("one", "two")]
    for relayer, pair in zip(relayers, (wallet(1, 1), wallet(1, 2)), strict=True):
        answers = await submit(relayer, *(transfer(pair, nonce) for nonce in range(3)))
        assert answers == ["ok", "ok", "budget exhausted"]


@pytest.mark.usefixtures("each_keeps_its_part")
async def test_what_one_wrote_off_is_left_alone_by_all(several: Several, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in nobody's part of what may be at risk, and may still run: others leave it alone until it cannot."""
    fee, key = 100_000 * 10**9, RELAYERS[1].public
    one, two = await several.start("one"), await several.start("two")
    before = two.service.lifecycle.sponsor.spendable(key)
    txs = [transfer(ALICE, nonce) for nonce in range(2)]
    assert await submit(one, *txs) == ["ok", "ok"]
    for tx in txs:
        assert one.service.lifecycle.write_off(client_hash(tx))
    assert two.service.lifecycle.sponsor.committed(key) == 0
    async with asyncio.timeout(20):
        while two.service.lifecycle.sponsor.spendable(key) > before - 2 * fee:
            await asyncio.sleep(0.01)
    assert two.service.lifecycle.sponsor.spendable(key) == before - 2 * fee
    standing = two.service.lifecycle.sponsor.standing_of(key)
    assert (standing.state.spendable, standing.written_off) == (before - 2 * fee, 2 * fee)
    await one.end()
    three = await several.start("three")
    assert three.service.lifecycle.sponsor.spendable(key) == before - 2 * fee, "it is known from the start"
    assert two.service.lifecycle.sponsor.spendable(key) == before - 2 * fee, "whoever has the seat"
    three.service.lifecycle.nonce_moved(ALICE.public, 2)
    monkeypatch.setattr(two.service.sharing.written_off, "_seconds", 0.1)
    async with asyncio.timeout(20):
        while two.service.lifecycle.sponsor.spendable(key) < before:
            await asyncio.sleep(0.01)


async def asked_to(kind: Kind, relayer: Relayer, tx: Any) -> Any:
    """A relayer's whole answer."""
    batch = await relayer.service.submitter.take(Origin(kind, "ip"), [raw(tx)])
    (result,) = await relayer.service.submitter.finish(batch)
    return result


async def relayed(relayer: Relayer, tx: Any) -> Any:
    """What a relayer answers to who asks it to relay."""
    return await asked_to("relay", relayer, tx)


@pytest.mark.usefixtures("each_keeps_its_part")
async def test_of_different_policies_the_smaller_budget_holds(several: Several) -> None:
    """Who starts with a larger one keeps to the smaller from the start, and who runs with it as soon as it hears."""
    fee, policies = 100_000 * 10**9, {}
    for name, fees in (("one", 4), ("two", 12)):
        file = policies[name] = several.folder / f"{name}.toml"
        file.write_text(
            seal(f"[budget]\nat_risk = {fees * fee}\n[strangers]\naddress_percent = 100\nreceiver_percent = 100\n")
        )
    one, two = [await several.start(name, policy_file=str(file)) for name, file in policies.items()]
    for relayer, pair in ((two, wallet(1, 2)), (one, wallet(1, 1))):
        answers = await submit(relayer, *(transfer(pair, nonce) for nonce in range(3)))
        assert answers == ["ok", "ok", "budget exhausted"]
    policies["one"].write_text(seal(f"[budget]\nat_risk = {2 * fee}\n"))
    await one.service.policy_keeper.read()
    async with asyncio.timeout(20):
        while two.service.lifecycle.sponsor.policy.budget.at_risk > fee:
            await asyncio.sleep(0.01)
    await one.end()
    async with asyncio.timeout(20):
        while two.service.lifecycle.sponsor.policy.budget.at_risk < 6 * fee:
            await asyncio.sleep(0.01)


async def only_signed(relayer: Relayer, tx: Any) -> Any:
    """What a relayer answers to who asks for its signature."""
    return await asked_to("sign", relayer, tx)


async def once_told(relayer: Relayer, tx: Any) -> Any:
    """The same, once it knows what another one signed."""
    async with asyncio.timeout(20):
        while not isinstance(answer := await only_signed(relayer, tx), Accepted):
            assert answer.code == reasons.SIGNER_UNAVAILABLE.code and answer.retry_after_ms
            await asyncio.sleep(0.05)
    return answer


async def test_what_one_signed_any_of_them_tells(several: Several) -> None:
    """The same bytes get the same signature from another relayer as soon as it knows that; others are refused."""
    one, two = await several.start("one"), await several.start("two")
    tx = transfer(ALICE, 0)
    first, again = await only_signed(one, tx), await once_told(two, tx)
    assert again == first and again.tx.relayer_signature
    assert not two.service.lifecycle.inflight.entries(), "who signed it follows it, and pays from its part"
    assert await submit(two, transfer(ALICE, 0, gas_limit=200_000), kind="sign") == ["conflicting transaction"]


async def test_a_signature_is_told_by_who_was_killed_before_it_could(several: Several) -> None:
    """It lies in the journal: after the next start any relayer knows it, and nobody asks for it in vain for ever."""
    one, two = await several.start("one"), await several.start("two")
    assert one.service.sharing is not None
    one.service.sharing.signed = lambda *_: None  # type: ignore[method-assign]
    tx = transfer(ALICE, 0)
    first = await only_signed(one, tx)
    await one.die()
    await several.start("one")
    assert await once_told(two, tx) == first


async def test_a_budget_moves_to_who_needs_it(several: Several) -> None:
    """One gets nearly all of what the other leaves idle, within seconds; both together never more than there is."""
    fee = 100_000 * 10**9
    policy = several.folder / "policy.toml"
    policy.write_text(
        seal(f"[budget]\nat_risk = {20 * fee}\n[strangers]\naddress_percent = 100\nreceiver_percent = 100\n")
    )
    one, two = [await several.start(name, policy_file=str(policy)) for name in ("one", "two")]
    busy, idle = wallet(1, 1), wallet(1, 2)
    taken = 0
    async with asyncio.timeout(30):
        while taken < 16:
            taken += await submit(one, transfer(busy, taken)) == ["ok"]
            await asyncio.sleep(0.01)
    answers = await submit(two, *(transfer(idle, nonce) for nonce in range(20)))
    assert 0 < answers.count("ok") <= 20 - taken
    sums = [relayer.service.lifecycle.sponsor.budgets.at_risk(RELAYERS[1].public) for relayer in (one, two)]
    assert sum(sums) <= 20 * fee


@pytest.mark.parametrize("kind", [Unavailable, Refused])
async def test_clients_are_told_nothing_of_the_server(several: Several, kind: type[OSError]) -> None:
    """Away, or refusing: the words, code and pause of `not ready`; where the server is and what it said has the log."""
    one = await several.start("one")
    sharing, words = one.service.sharing, "db1:5432/relayer: remaining connection slots are reserved"
    assert sharing is not None

    async def away(*_: Any, **__: Any) -> Any:
        raise kind(words)

    async with asyncio.timeout(10):
        async with sharing._asking.turn:
            first = asyncio.ensure_future(relayed(one, transfer(ALICE, 0)))
            while not sharing.waiting:
                await asyncio.sleep(0.005)
            ask, sharing._seats._db.ask = sharing._seats._db.ask, away  # type: ignore[method-assign]
        while sharing.why_not() is None:
            await asyncio.sleep(0.005)
    refusals = [await relayed(one, transfer(ALICE, nonce)) for nonce in (1, 5)]
    refusals.append(await only_signed(one, transfer(wallet(1, 2), 0)))
    if kind is Refused:
        refusals.append(await first)
    health = one.service.readiness.health()
    sharing._seats._db.ask = ask  # type: ignore[method-assign]
    if kind is Unavailable:
        assert isinstance(await first, Accepted), "what was asked before is answered by the server that is back"
    for refusal in refusals:
        assert (refusal.reason, refusal.code, refusal.retry_after_ms) == ("not ready", "not_ready", 5_000)
    assert health["sponsoring"] != "ok"
    for told in (*(refusal.detail for refusal in refusals), *map(str, health.values())):
        assert "5432" not in told and "slots" not in told


async def test_a_server_that_is_away_for_a_moment_ends_no_start(
    several: Several, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither where the seat's claims are read nor where the keys are taken: both are asked for again."""
    asked: list[str] = []

    def away_once(kind: type[Any], name: str) -> None:
        ask = getattr(kind, name)

        def work(*args: Any) -> Any:
            asked.append(name)
            if asked.count(name) == 1:
                raise Unavailable("it is away for a moment")
            return ask(*args)

        monkeypatch.setattr(kind, name, work)

    away_once(Seats, "each_since")
    away_once(PostgresLeases, "take")
    one = await several.start("one")
    assert asked == ["each_since"] * 2 + ["take"] * 2
    assert await submit(one, transfer(ALICE, 0)) == ["ok"]


async def test_who_does_not_share_is_refused(several: Several) -> None:
    """A relayer alone becomes one of several with what it signed; after that, and beside them, none is alone."""
    alone = {"claims_url": Secret(), "lease_url": several.values["claims_url"]}
    one = await several.start("one", **alone)
    assert await submit(one, transfer(ALICE, 0)) == ["ok"]
    with pytest.raises(SignerError, match="in use by"):
        await several.start("two")
    await one.end()
    with pytest.raises(SignerError, match="another folder"):
        await several.start("two")
    one = await several.start("one")
    two = await several.start("two")
    assert await submit(two, transfer(ALICE, 0, gas_limit=200_000)) == ["conflicting transaction"]
    assert await submit(two, transfer(ALICE, 1)) == ["ok"]
    with pytest.raises(SignerError, match="in use by"):
        await several.start("three", **alone)
    await one.end()
    with pytest.raises(JournalError, match="claims_url"):
        await several.start("one", **alone)
    await several.start("one", **alone, key_files=(), forward_to=("ws://127.0.0.1:1",))  # an edge signs nothing


async def test_row_10_a_start_waits_for_a_server_that_has_forgotten(
    several: Several, postgres: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    """All were stopped and the server was put back from a backup: who was idle then signs no other payload either."""
    one, two = await several.start("one"), await several.start("two")
    shared = await one.service.sharing.id()
    assert await submit(two, transfer(ALICE, 0)) == ["ok"]
    async with asyncio.timeout(20):
        while not one.service.journal.known_commits(shared):
            await asyncio.sleep(0.01)
    seats = two.service.sharing._seats
    where, schema = f"WHERE seat = {seats.number}", f'"{seats._schema}"'
    await one.end()
    await two.end()
    postgres.sql(f"UPDATE {schema}.seats SET position = 0 {where}")
    again = asyncio.ensure_future(several.start("one"))
    try:
        async with asyncio.timeout(20):
            while not any("forgotten" in str(vars(record)) for record in caplog.records):
                assert not again.done()
                await asyncio.sleep(0.01)
        postgres.sql(f"UPDATE {schema}.seats SET position = 1 {where}")
        assert await submit(await again, transfer(ALICE, 0, gas_limit=200_000)) == ["conflicting transaction"]
    finally:
        again.cancel()
        await asyncio.gather(again, return_exceptions=True)


async def test_row_10_a_wrong_server_does_not_change_what_is_known_of_the_right_one(
    several: Several, postgres: Postgres
) -> None:
    """A start with the address of others is refused, takes no seat of theirs and forgets nothing of its own."""
    one = await several.start("one")
    shared = await one.service.sharing.id()
    for nonce in range(2):
        assert await submit(one, transfer(ALICE, nonce)) == ["ok"]
    async with asyncio.timeout(20):
        while one.service.journal.known_commits(shared) < 2:
            await asyncio.sleep(0.01)
    await one.end()
    names = "claims_schema", "lease_schema"
    others = {name: f"{several.values[name]}_others" for name in names}
    two = await several.start("two", **others)
    assert await submit(two, transfer(wallet(1, 2), 0)) == ["ok"]
    with pytest.raises(JournalError, match="claims_url"):
        await several.start("one", **others)
    with contextlib.closing(sqlite3.connect(several.folder / "one" / JOURNAL)) as journal:
        assert journal.execute("SELECT value FROM meta WHERE name = 'shared_commits'").fetchall() == [("2",)]
    assert postgres.sql(f"SELECT count(*) FROM \"{others['claims_schema']}\".seats WHERE place <> ''") == "1"


async def test_who_was_frozen_beyond_its_lease_ends(several: Several) -> None:
    """Another has its seat: it signs nothing that it is asked when it wakes up, and ends."""
    one = await several.start("one", claims_seats=1)
    assert await submit(one, transfer(ALICE, 0)) == ["ok"]
    sharing = one.service.sharing
    assert sharing is not None
    async with sharing._asking.turn:  # it asks the server for nothing meanwhile, as one that stands still
        two = await several.start("two", claims_seats=1)
        late = asyncio.ensure_future(submit(one, transfer(ALICE, 1)))
        await asyncio.sleep(0)
    assert await late == ["not ready"]
    with pytest.raises(OSError, match="taken over"):
        await one.running
    assert await submit(two, transfer(ALICE, 1, gas_limit=200_000)) == ["ok"]


async def test_what_ran_by_another_is_not_told_as_failed(several: Several) -> None:
    """Its claim waits while another signs the same bytes and a block has them: whoever listens hears no failure."""
    one, two = await several.start("one"), await several.start("two")
    failed: list[Any] = []
    one.service.lifecycle.on_refused = failed.append
    sharing, tx = one.service.sharing, transfer(ALICE, 0)
    assert sharing is not None
    async with asyncio.timeout(20):
        async with sharing._asking.turn:  # as one that is cut off from the server
            late = asyncio.ensure_future(submit(one, tx))
            while not one.service.lifecycle.inflight.entries():
                await asyncio.sleep(0.005)
            assert await submit(two, tx) == ["ok"]
            (entry,) = two.service.lifecycle.inflight.entries()
            several.world.hub.save(BlockMaker(1).block([entry.tx], accounts={ALICE.public: (1, 10**18)}))
            while one.service.lifecycle.inflight.entries():
                await asyncio.sleep(0.005)
        await late
    assert failed == []


async def test_what_is_of_another_seat_is_left_to_it(several: Several) -> None:
    """Who comes back to another seat forgets what it had in flight; who has the seat it was claimed for goes on."""
    one = await several.start("one")
    seat = one.service.sharing.seat.number
    assert await submit(one, transfer(ALICE, 0)) == ["ok"]
    await one.end()
    two = await several.start("two")
    three = await several.start("three")
    by_seat = {relayer.service.sharing.seat.number: relayer for relayer in (two, three)}
    other = by_seat[1 - seat]
    await other.end()
    one = await several.start("one")
    assert one.service.sharing.seat.number == 1 - seat and not one.service.lifecycle.inflight.entries()
    await by_seat[seat].end()
    await one.end()
    again = [await several.start("one"), await several.start("two")]
    (found,) = [relayer for relayer in again if relayer.service.sharing.seat.number == seat]
    (entry,) = found.service.lifecycle.inflight.entries()
    assert entry.sending and entry.chain_hash


async def test_what_was_only_passed_on_does_not_keep_anybody_from_a_seat(several: Several) -> None:
    """A relayer broadcast another payload of a nonce that the seat's holder signed: it follows the signed one."""
    two = await several.start("two", claims_seats=1)
    assert await submit(two, transfer(ALICE, 0, relayed=False), kind="broadcast") == ["ok"]
    await two.end()
    one = await several.start("one", claims_seats=1)
    signed = transfer(ALICE, 0)
    assert await submit(one, signed) == ["ok"]
    await one.die()
    two = await several.start("two", claims_seats=1)
    (entry,) = two.service.lifecycle.inflight.entries()
    assert entry.client_hash == client_hash(signed) and entry.sending


@pytest.mark.parametrize("is_over", [False, True])
async def test_what_was_passed_on_is_paid_for_by_who_takes_the_seat(several: Several, is_over: bool) -> None:
    """A relayer broadcast the bytes that the seat's holder signed: with the seat it takes the claim and its end."""
    tx = transfer(ALICE, 0)
    whole = msgspec.structs.replace(tx, relayer_signature=RELAYERS[1].sign(signing_message(tx)))
    two = await several.start("two", claims_seats=1)
    assert await submit(two, whole, kind="broadcast") == ["ok"]
    await two.end()
    one = await several.start("one", claims_seats=1)
    assert await submit(one, tx) == ["ok"]
    if is_over:
        block = BlockMaker(1).block([whole], accounts={ALICE.public: (1, 10**18)})
        several.world.hub.save(block)
        await several.world.hub.acknowledged(1)
        await one.end()
    else:
        await one.die()
    two = await several.start("two", claims_seats=1)
    entries = two.service.lifecycle.inflight.entries()
    standing = two.service.lifecycle.sponsor.budgets.standing(RELAYERS[1].public, asyncio.get_running_loop().time())
    assert [entry.sending for entry in entries] == ([] if is_over else [True])
    assert standing.at_risk == sum(entry.fee for entry in entries)
    assert standing.spent_day >= 50_000 * 10**9


async def test_what_failed_is_lost_for_who_takes_the_seat(several: Several) -> None:
    """For the whole hour, as it was for who had it; also for who goes back to a folder that did not know the end."""
    two = await several.start("two", claims_seats=1)
    assert await submit(two, transfer(ALICE, 0)) == ["ok"]
    await two.die()
    one = await several.start("one", claims_seats=1)
    assert await submit(one, transfer(ALICE, 1), transfer(ALICE, 2)) == ["ok", "ok"]
    txs = [entry.tx for entry in one.service.lifecycle.inflight.entries()]
    failing = {chain_hash(txs[nonce]): "no" for nonce in (0, 1)}
    block = BlockMaker(1).block(txs, accounts={ALICE.public: (3, 10**18)}, failing=failing)
    several.world.hub.save(block)
    async with asyncio.timeout(20):
        while one.service.lifecycle.inflight.entries():
            await asyncio.sleep(0.01)
    key, fee = RELAYERS[1].public, 50_000 * 10**9
    now = asyncio.get_running_loop().time
    assert one.service.lifecycle.sponsor.budgets.standing(key, now()).lost_hour == 2 * fee
    await one.end()
    for name in ("two", "three", "one"):
        next_one = await several.start(name, claims_seats=1)
        standing = next_one.service.lifecycle.sponsor.budgets.standing(key, now())
        assert (standing.lost_hour, standing.spent_hour) == (2 * fee, 3 * fee)
        await next_one.end()


async def test_what_failed_is_told_after_a_restart(several: Several) -> None:
    """Who was killed before the server heard of it tells it when it is back: it has read on, and nobody else will."""
    one = await several.start("one", claims_seats=1)
    assert await submit(one, transfer(ALICE, 0)) == ["ok"]
    (entry,) = one.service.lifecycle.inflight.entries()

    async def unheard(*_: Any) -> Any:
        raise Unavailable("nobody hears it")

    one.service.sharing._seats.renew = unheard  # type: ignore[method-assign]
    block = BlockMaker(1).block([entry.tx], accounts={ALICE.public: (1, 10**18)}, failing={chain_hash(entry.tx): "no"})
    several.world.hub.save(block)
    async with asyncio.timeout(20):
        while one.service.lifecycle.inflight.entries():
            await asyncio.sleep(0.01)
    await one.die()
    for name in ("one", "two"):
        next_one = await several.start(name, claims_seats=1)
        standing = next_one.service.lifecycle.sponsor.budgets.standing(
            RELAYERS[1].public, asyncio.get_running_loop().time()
        )
        assert standing.lost_hour == 50_000 * 10**9
        await next_one.end()


async def test_who_was_away_for_long_starts_again(several: Several, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it had in flight is over and forgotten by those who went on with it: that is not a server that forgot."""
    one = await several.start("one", claims_seats=1)
    assert await submit(one, transfer(ALICE, 0)) == ["ok"]
    await one.die()
    several.world.hub.subscribed.clear()
    two = await several.start("two", claims_seats=1)
    async with asyncio.timeout(10):
        await several.world.hub.subscribed.wait()
    maker = BlockMaker(1)
    entries = [entry.tx for entry in two.service.lifecycle.inflight.entries()]
    several.world.hub.save(maker.block(entries, accounts={ALICE.public: (1, 10**18)}))
    await several.world.hub.acknowledged(2)
    assert not two.service.lifecycle.inflight.entries()
    sharing = two.service.sharing
    assert sharing is not None
    async with asyncio.timeout(10):
        while await sharing.whose([(ALICE.public, 0)]):
            sharing.forget(2**62)  # it forgets what is old by itself, too, which may be what it does next
            await asyncio.sleep(0.01)
    await two.end()
    with pytest.raises(JournalError, match="forgotten"):  # a young one it must know
        await several.start("one", claims_seats=1)
    monkeypatch.setattr(reconcile, "BUDGET_MS", -1000)  # it is a day later
    one = await several.start("one", claims_seats=1)
    (entry,) = one.service.lifecycle.inflight.entries()
    claimed = await one.service.sharing.whose([(ALICE.public, 0)])
    assert [(item.client_hash, item.state) for item in claimed.values()] == [(entry.client_hash, "journalled")]


async def test_who_stands_by_sends_what_it_only_had_to_broadcast(several: Several) -> None:
    """Nobody claimed it, so who took the seat does not know it."""
    api = several.world.api
    one = await several.start("one", claims_seats=1)
    await one.service.accounts.know(ALICE.public)  # known before the API is down
    api.down = True
    passed_on = transfer(ALICE, 0, relayed=False)
    assert await submit(one, passed_on, kind="broadcast") == ["ok"]
    await one.end()
    await several.start("two", claims_seats=1)
    api.down = False
    again = asyncio.ensure_future(several.start("one", claims_seats=1))
    try:
        (sent,) = await api.wait_submitted(1)
        assert sent["signature"] == passed_on.signature.hex() and not again.done()
    finally:
        again.cancel()
        await asyncio.gather(again, return_exceptions=True)


async def test_who_begins_to_share_tells_where_it_reads_with_its_first_claim(several: Several) -> None:
    """Also before its notifier has answered: who has the seat next hears how that claim ended."""
    one = await several.start("one", claims_url=Secret(""))
    port = several.world.hub.server.port
    await one.end()
    await several.world.hub.stop()
    one = await several.start("one", claims_seats=1)
    assert await submit(one, transfer(ALICE, 0)) == ["ok"]
    await one.die()
    await several.world.hub.start(port)
    two = await several.start("two", claims_seats=1)
    assert two.service.sharing is not None and two.service.sharing.seat is not None
    assert two.service.sharing.seat.cursor == 0 and two.service.events.gaps == 0


@pytest.mark.parametrize("knows_where", [True, False])
async def test_what_was_only_broadcast_and_ended_meanwhile_is_heard(several: Several, knows_where: bool) -> None:
    """Who had the seat meanwhile read on without following it; where it is not known since when, events are lost."""
    one = await several.start("one", claims_seats=1)
    tx = transfer(ALICE, 0, relayed=False)
    assert await submit(one, tx, kind="broadcast") == ["ok"]
    if not knows_where:
        one.service.journal.forget_cursor()
        one.service.journal.keep_cursor = lambda *_: None  # type: ignore[method-assign]
    await one.die()
    two = await several.start("two", claims_seats=1)
    several.world.hub.save(BlockMaker(1).block([tx], accounts={ALICE.public: (1, 10**18)}))
    await several.world.hub.acknowledged(2)
    await two.end()
    one = await several.start("one", claims_seats=1)
    several.world.hub.save(BlockMaker(2).block())
    await several.world.hub.acknowledged(4)
    found = await one.service.lifecycle.fates.find(chain_hash(tx))
    assert found is not None and (found[0].state, one.service.events.gaps) == (
        ("success", 0) if knows_where else ("pending", 1)
    )


async def test_a_start_that_fails_with_a_seat_does_not_forget_what_was_not_heard(
    several: Several, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seat is this folder's from then on: the next start finds nothing else that says that events are lost."""
    one = await several.start("one", claims_seats=1)
    tx = transfer(ALICE, 0, relayed=False)
    assert await submit(one, tx, kind="broadcast") == ["ok"]
    one.service.journal.forget_cursor()
    one.service.journal.keep_cursor = lambda *_: None  # type: ignore[method-assign]
    await one.die()
    await (await several.start("two", claims_seats=1)).end()

    async def fail(_: Service) -> None:
        raise OSError("no such file")

    with monkeypatch.context() as patch:
        patch.setattr(Service, "_open_fates", fail)
        with pytest.raises(OSError, match="no such file"):
            await several.start("one", claims_seats=1)
    one = await several.start("one", claims_seats=1)
    (entry,) = one.service.lifecycle.inflight.entries()
    assert entry.losses != one.service.lifecycle._losses


async def test_what_may_have_run_elsewhere_is_not_told_to_have_failed(several: Several) -> None:
    """The same bytes may have come to another relayer, or who took our seat had them: only the chain knows."""
    one = await several.start("one")
    sharing, lifecycle = one.service.sharing, one.service.lifecycle
    assert sharing is not None
    told: list[Any] = []
    lifecycle.on_refused = told.append
    tx = transfer(ALICE, 0)
    async with sharing._asking.turn:  # its claim is asked for and not answered
        late = asyncio.ensure_future(submit(one, tx))
        async with asyncio.timeout(10):
            while not lifecycle.inflight.entries():
                await asyncio.sleep(0)
        lifecycle.nonce_moved(ALICE.public, 1)
    assert await late == ["relayer busy"]
    assert not told and await lifecycle.fates.find(client_hash(tx)) is None


async def ran(several: Several, relayers: list[Relayer], tx: Any, sequence: int = 1) -> None:
    """A block of ALICE's shard has this transaction, her account is past it, and these relayers have heard so."""
    several.world.hub.save(BlockMaker(sequence).block([tx], accounts={ALICE.public: (tx.nonce + 1, 10**18)}))
    async with asyncio.timeout(10):
        while any(
            (account := relayer.service.accounts.book.get(ALICE.public)) is None or account.nonce <= tx.nonce
            for relayer in relayers
        ):
            await asyncio.sleep(0.005)


async def told_over(relayer: Relayer, nonce: int) -> None:
    """Wait until the claims' server has heard how a claim of ALICE ended."""
    async with asyncio.timeout(10):
        while (await relayer.service.sharing.whose([(ALICE.public, nonce)]))[ALICE.public, nonce].is_open:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("tells", [True, False])
async def test_what_ran_is_accepted_by_any_of_them(several: Several, tells: bool) -> None:
    """Who lost the reply sends the same bytes to another relayer: also after the block they have not failed."""
    one, two = await several.start("one"), await several.start("two")
    await two.service.accounts.know(ALICE.public)
    tx = transfer(ALICE, 0)
    assert await submit(one, tx) == ["ok"]
    (entry,) = one.service.lifecycle.inflight.entries()
    await ran(several, [one, two], entry.tx)
    if tells:
        await told_over(two, 0)
    answer = await relayed(two, tx)
    assert isinstance(answer, Accepted) and answer.client_hash == client_hash(tx)
    assert await submit(two, entry.tx, kind="broadcast") == ["ok"]
    assert await submit(two, transfer(ALICE, 0, gas_limit=200_000)) == ["nonce too low"]
    assert await submit(two, transfer(ALICE, 0, relayed=False), kind="broadcast") == ["nonce too low"]


async def test_what_was_signed_and_ran_is_accepted_by_any_of_them(several: Several) -> None:
    """It was signed by one and broadcast by somebody: each way it is asked for anew has the answer of the first."""
    one, two = await several.start("one"), await several.start("two")
    tx = transfer(ALICE, 0)
    first = await once_told(one, tx)
    await once_told(two, tx)
    await ran(several, [one, two], first.tx)
    assert (await relayed(two, tx)).reason == "relayer busy", "whether these bytes ran who signed them has yet to tell"
    await told_over(two, 0)
    for kind, asked in (("relay", tx), ("sign", tx), ("broadcast", first.tx)):
        assert await asked_to(kind, two, asked) == first


@pytest.mark.parametrize("balance", [10**18, 5])
async def test_what_ran_is_accepted_where_it_was_refused_for_something_else_first(
    several: Several, monkeypatch: pytest.MonkeyPatch, balance: int
) -> None:
    """That the account is past it the chain API says, asked for a nonce too high or a balance too low."""
    monkeypatch.setattr(account_source, "REFRESH_SECONDS", 0)
    one, two = await several.start("one"), await several.start("two")
    several.world.api.set(ALICE.public, 0, balance)
    await two.service.accounts.know(ALICE.public)
    several.world.api.set(ALICE.public, 0, 10**18)
    txs = [transfer(ALICE, nonce, value=6) for nonce in range(3)]
    assert await submit(one, *txs) == ["ok"] * 3
    several.world.api.set(ALICE.public, 3, 10**18)
    assert await submit(two, txs[2 if balance > 5 else 0]) == ["pending"]
    assert await submit(two, transfer(ALICE, 2)) == ["nonce too low"]


async def test_what_ran_and_another_gave_up_is_refused_in_its_words(several: Several) -> None:
    """What another relayer wrote off is `written off`, whoever is asked; what gave way has a nonce that is too low."""
    one, two = await several.start("one"), await several.start("two")
    tx = transfer(ALICE, 0)
    assert await submit(one, tx) == ["ok"]
    assert one.service.lifecycle.write_off(client_hash(tx))
    await told_over(two, 0)
    assert await submit(two, tx) == ["written off"]


async def ended(relayer: Relayer, nonce: int) -> tuple[str, str | None]:
    """State and cost of a claim of ALICE, once its holder has told its end."""
    async with asyncio.timeout(20):
        while True:
            claimed = (await relayer.service.sharing.whose([(ALICE.public, nonce)]))[ALICE.public, nonce]
            if claimed.ended_ms is not None:
                return claimed.state, claimed.cost
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("is_lost", [True, False])
async def test_what_may_have_run_unseen_is_accepted_by_any_of_them(several: Several, is_lost: bool) -> None:
    """Its nonce was used, and where events were lost nobody knows by what: else it never ran, and is told so."""
    one, two = await several.start("one"), await several.start("two")
    tx = transfer(ALICE, 0)
    assert await submit(one, tx) == ["ok"]
    if is_lost:
        one.service.lifecycle.events_lost()
    one.service.lifecycle.nonce_moved(ALICE.public, 1)
    assert await ended(two, 0) == ("superseded", str(100_000 * 10**9) if is_lost else "0")
    several.world.api.set(ALICE.public, 1, 10**18)
    assert await submit(two, tx) == ["pending" if is_lost else "nonce too low"]


@pytest.mark.parametrize("what", ["ran", "another ran", "lost"])
async def test_what_was_written_off_ends_as_what_it_is(several: Several, what: str) -> None:
    """All hear what became of it: a block had it, its nonce was used by another, or nobody knows."""
    one, two = await several.start("one"), await several.start("two")
    tx, lifecycle = transfer(ALICE, 0), one.service.lifecycle
    assert await submit(one, tx) == ["ok"]
    (entry,) = lifecycle.inflight.entries()
    assert lifecycle.write_off(client_hash(tx))
    if what == "ran":
        await ran(several, [one], entry.tx)
    else:
        if what == "lost":
            lifecycle.events_lost()
        lifecycle.nonce_moved(ALICE.public, 1)
    cost = "0" if what == "another ran" else str(100_000 * 10**9)
    assert await ended(two, 0) == ("finished" if what == "ran" else "superseded", cost)
    several.world.api.set(ALICE.public, 1, 10**18)
    assert await submit(two, tx) == ["nonce too low" if what == "another ran" else "pending"]


async def test_what_cannot_be_asked_is_not_refused_for_good(several: Several) -> None:
    """While the claims' server is away nobody is told that what may have run has failed; it costs no wait."""
    one, two = await several.start("one"), await several.start("two")
    await two.service.accounts.know(ALICE.public)
    tx = transfer(ALICE, 0)
    assert await submit(one, tx) == ["ok"]
    (entry,) = one.service.lifecycle.inflight.entries()
    await ran(several, [one, two], entry.tx)

    async def away(*_: Any, **__: Any) -> Any:
        raise Unavailable("it is away")

    db = two.service.sharing._seats._db
    ask, db.ask = db.ask, away  # type: ignore[method-assign]
    for _ in range(2):
        answer = await relayed(two, tx)
        assert (answer.reason, answer.retry_after_ms) == ("not ready", 5_000)
    db.ask = ask  # type: ignore[method-assign]
    async with asyncio.timeout(10):
        while two.service.sharing.failed is not None:
            await asyncio.sleep(0.01)
    assert isinstance(await relayed(two, tx), Accepted)


async def test_what_needs_no_word_of_the_server_does_not_wait_for_it(several: Several) -> None:
    """While it is away something waits to be told it as broadcast: refusals and pauses do not, nor does who asks for
    that once more; it is told when the server is back."""
    one = await several.start("one")
    signed, sharing, lifecycle = transfer(ALICE, 0), one.service.sharing, one.service.lifecycle
    assert sharing is not None and isinstance(await only_signed(one, signed), Accepted)

    async def away(*_: Any, **__: Any) -> Any:
        raise Unavailable("it is away")

    ask, sharing._seats._db.ask = sharing._seats._db.ask, away  # type: ignore[method-assign]
    first = asyncio.ensure_future(relayed(one, signed))
    async with asyncio.timeout(10):
        while sharing._telling is None or sharing.failed is None:
            await asyncio.sleep(0.005)
        for tx in (signed, signed, transfer(ALICE, 2)):
            answer = await relayed(one, tx)
            assert (answer.reason, answer.retry_after_ms) == ("not ready", 5_000)
        await lifecycle.pause(frozenset({1}))
        await lifecycle.pause(frozenset())
        assert not lifecycle.sponsor.paused and not first.done()
        sharing._seats._db.ask = ask  # type: ignore[method-assign]
        assert isinstance(await first, Accepted)
    assert isinstance(await relayed(one, signed), Accepted)


async def test_a_first_submission_asks_the_claims_once(several: Several, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of whoever goes on where it is nothing is asked but the claim, and of all who wait for an answer at once."""
    one, two = await several.start("one"), await several.start("two")
    asked: list[str] = []

    def count(name: str) -> None:
        call = getattr(Seats, name)

        def counted(*args: Any, **named: Any) -> Any:
            asked.append(name)
            return call(*args, **named)

        monkeypatch.setattr(Seats, name, counted)

    for name in ("claimed", "whose", "claim_charged"):
        count(name)
    pairs = [wallet(1, number) for number in range(40)]
    for nonce in range(2):
        assert await submit(one, *(transfer(pair, nonce) for pair in pairs)) == ["ok"] * 40
    assert set(asked) == {"claim_charged"}
    for pair in pairs:
        several.world.api.set(pair.public, 1, 10**18)
    asked.clear()
    sharing = two.service.sharing
    assert sharing is not None
    async with asyncio.timeout(20):
        async with sharing._asking.turn:  # as while the server is slow to answer
            late = [
                asyncio.ensure_future(submit(two, transfer(pair, 0, gas_limit=200_000), ip=f"ip{number}"))
                for number, pair in enumerate(pairs)
            ]
            while len(sharing._questions._waiting) < len(pairs):
                await asyncio.sleep(0.005)
        assert await asyncio.gather(*late) == [["nonce too low"]] * 40
    assert asked == ["claimed"]


async def prepared(relayer: Relayer, **asked: Any) -> Any:
    """What a relayer's `/v1/prepare` answers of ALICE."""
    wish = {"sender": encode(ALICE.public), "receiver": encode(wallet(1, 20).public)} | asked
    url = f"http://127.0.0.1:{relayer.service.http_port}/v1/prepare"
    async with aiohttp.ClientSession() as http, http.post(url, json={"transaction": wish}) as answer:
        return await answer.json()


async def test_any_of_them_prepares_what_comes_next(several: Several) -> None:
    """Nonces go on behind what all have in flight, as `relay` of the same relayer has it; taken ones are refused."""
    one, two = await several.start("one"), await several.start("two")
    for nonce in range(2):
        assert await submit(one, transfer(ALICE, nonce)) == ["ok"]
    assert (await prepared(two))["transaction"]["nonce"] == 2
    assert (await prepared(two, nonce=2))["sponsored"]
    assert (await prepared(two, nonce=3))["reason"] == "nonce too high"
    assert (await prepared(two, nonce=1))["reason"] == "conflicting transaction"
    assert await submit(two, transfer(ALICE, 2)) == ["ok"]
    assert one.service.lifecycle.write_off(client_hash(transfer(ALICE, 0)))
    await told_over(two, 0)
    refusal, relay = await prepared(two, nonce=0), await relayed(two, transfer(ALICE, 0, gas_limit=200_000))
    assert (refusal["reason"], refusal["detail"]) == (relay.reason, relay.detail) == ("nonce too low", relay.detail)


async def test_prepare_promises_nothing_while_the_claims_cannot_be_read(several: Several) -> None:
    """It says `not ready`, as `relay` would, and does not wait for the server."""
    one = await several.start("one")

    async def away(*_: Any, **__: Any) -> Any:
        raise Unavailable("it is away")

    ask, one.service.sharing._seats._db.ask = one.service.sharing._seats._db.ask, away  # type: ignore[method-assign]
    refusal = await prepared(one)
    one.service.sharing._seats._db.ask = ask  # type: ignore[method-assign]
    assert (refusal["sponsored"], refusal["reason"], refusal["retryAfterMs"]) == (False, "not ready", 5_000)


async def test_who_waits_at_another_for_the_end_hears_of_it(several: Several) -> None:
    """`wait=final` of what another relayer has in flight ends with its block; what has ended is not waited for."""
    one, two = await several.start("one"), await several.start("two")
    await two.service.accounts.know(ALICE.public)
    tx = transfer(ALICE, 0)
    assert await submit(one, tx) == ["ok"]
    (entry,) = one.service.lifecycle.inflight.entries()
    url = f"http://127.0.0.1:{two.service.http_port}/v1/relay?wait=final&timeout=60"

    async def relay() -> Any:
        async with aiohttp.ClientSession() as http, http.post(url, json={"transactions": [as_json(tx)]}) as answer:
            (result,) = (await answer.json())["results"]
            return result

    async with asyncio.timeout(20):
        waiting, fates = asyncio.ensure_future(relay()), two.service.lifecycle.fates
        while not fates.waiters:
            await asyncio.sleep(0.005)
        await ran(several, [one, two], entry.tx)
        found = (await waiting)["transaction"]
        assert (found["state"], found["chainHash"]) == ("success", chain_hash(entry.tx).hex())
        assert not fates.waiters and not fates.followed
        assert "transaction" not in await relay()


async def test_one_that_stands_by_says_so_to_edges_and_what_its_folder_knows(several: Several) -> None:
    """What nobody knows is 404 at an edge also while a relayer stands by; what only that one's folder has is not."""
    ports, (operators,) = free_ports(2), free_ports(1)
    begun = {"claims_seats": 1, "edges": ("127.0.0.0/8",)}
    two = await several.start("two", port=ports[1], **begun)
    known, open_still = transfer(wallet(2), relayed=False), transfer(ALICE, relayed=False)
    assert await submit(two, known, open_still, kind="broadcast") == ["ok"] * 2
    maker = BlockMaker(2)
    several.world.hub.save(maker.block([known]))
    await several.heard(two, 2)
    await two.end()
    one = await several.start("one", port=ports[0], **begun)
    starting = asyncio.create_task(several.start("two", port=ports[1], metrics_port=operators, **begun))
    front = Front(several.folder / "edge")
    try:
        urls = [f"ws://127.0.0.1:{port}" for port in ports]
        await front.start(urls, up=1)
        assert front.service is not None and front.service.signers is not None
        signers = front.service.signers
        await until(lambda: signers.state() == {urls[0]: "ok", urls[1]: "stands by"})

        async def ask(tx_hash: bytes) -> int:
            async with aiohttp.request("GET", f"{front.http}/v1/transactions/{tx_hash.hex()}") as answer:
                return answer.status

        assert await ask(b"\7" * 32) == 404
        assert await ask(chain_hash(known)) == 200
        assert await ask(client_hash(open_still)) == 503, "who does not follow it cannot say what becomes of it"
        with pytest.raises(aiohttp.WSServerHandshakeError, match="503"):
            async with connected(f"{urls[1]}/ws"):
                pass
        await one.end()
        await starting
        await until(lambda: signers.state()[urls[1]] == "ok")
        assert await ask(b"\7" * 32) == 503, "the other one is away, and may know"
    finally:
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await front.stop()
