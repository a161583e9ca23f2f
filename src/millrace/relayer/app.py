"""Wires the relayer: journal, signing process, gossip peer, hub client, WebSocket and REST servers."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from millrace.chain import address
from millrace.chain.network import NetworkProfile
from millrace.gossip.child import is_there
from millrace.relayer.blocks.rounds import Rounds
from millrace.relayer.blocks.tracker import Tracker
from millrace.relayer.events.absent_accounts import AbsentAccounts
from millrace.relayer.events.bookmark import Bookmark
from millrace.relayer.events.events import Events
from millrace.relayer.events.hub_client import HubClient
from millrace.relayer.events.window import WindowReader
from millrace.relayer.forwarding import wire
from millrace.relayer.forwarding.lane import ForwardLane
from millrace.relayer.forwarding.parts import Taken
from millrace.relayer.forwarding.signers import Signers
from millrace.relayer.forwarding.signing_end import Edges, new_run
from millrace.relayer.forwarding.standing_by import StandingBy
from millrace.relayer.gateway.gateway import Gateway
from millrace.relayer.gateway.shared import Shared
from millrace.relayer.journal import identity, recovery
from millrace.relayer.journal.audit import Spent
from millrace.relayer.journal.common_programmes import Limits
from millrace.relayer.journal.fates import Fates
from millrace.relayer.journal.holding import keeper_of, sharing_of
from millrace.relayer.journal.journal import Journal
from millrace.relayer.journal.portions import PORTIONS, Need
from millrace.relayer.journal.reconcile import reconcile
from millrace.relayer.journal.replaceable import FATES, HISTORY
from millrace.relayer.journal.sharing import Sharing
from millrace.relayer.journal.writer import JournalError
from millrace.relayer.keys import Keys
from millrace.relayer.ledger.accounts import AccountBook
from millrace.relayer.ledger.followed import Followed
from millrace.relayer.ledger.inflight import Entry
from millrace.relayer.ledger.lifecycle import Lifecycle
from millrace.relayer.lobby import Lobby
from millrace.relayer.measures import Measured
from millrace.relayer.network.account_source import AccountSource
from millrace.relayer.network.broadcaster import Broadcaster
from millrace.relayer.network.chain_api import ChainApi
from millrace.relayer.network.gossip_peer import Peer
from millrace.relayer.network.key_balances import KeyBalances
from millrace.relayer.network.round_length import RoundLength
from millrace.relayer.network.simulator import Simulator
from millrace.relayer.ports import Ports
from millrace.relayer.readiness import Readiness
from millrace.relayer.rules import policy
from millrace.relayer.rules.policy_file import PolicyFile
from millrace.relayer.rules.seats import least, part_of, read_sums, sums_of
from millrace.relayer.rules.stages import Relayers
from millrace.relayer.settings import RelayerSettings
from millrace.relayer.signing.handle import SignerError, SigningProcess
from millrace.relayer.statistics.gas import WINDOW_SECONDS
from millrace.relayer.statistics.history import History, flatten
from millrace.relayer.statistics.history_store import Points, PostgresPoints, SqlitePoints
from millrace.relayer.statistics.streams import Statistics
from millrace.relayer.submission.cosigner import Cosigner
from millrace.relayer.submission.passing_on import pass_on
from millrace.relayer.submission.submitter import Submitter
from millrace.relayer.upkeep import PolicyKeeper, Tidier
from millrace.runtime import extras
from millrace.runtime.doors import Doors, room_for_connections
from millrace.runtime.process import wait_first
from millrace.runtime.tracing import Tracer, tracing

log = logging.getLogger(__name__)

HISTORY_SECONDS = 1.0
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
HANDSHAKES, HANDSHAKES_PER_CLIENT = 1_000, 100
"""WebSocket connections without a finished handshake, beside as many sessions as there may be."""

NOT_INSTALLED = "not installed"
"""What `/health` says of gossip that is wanted, and whose packages are not there."""


async def run(settings: RelayerSettings, stop: asyncio.Event) -> None:
    """Serve until `stop` is set. Raises `OSError` when a port is taken or the keys cannot be used."""
    with tracing("relayer", settings) as tracer:
        await _run(Service(settings, tracer), stop)


async def _run(service: Service, stop: asyncio.Event) -> None:
    # What is kept of transactions and accounts is not walked at all (`gc=False`). The rest is walked in short pauses of
    # about a millisecond while it is young, and hardly ever as a whole.
    gc.set_threshold(5_000, 20, 500)
    loop = asyncio.get_running_loop()
    try:
        try:
            if not await _started(service, stop):
                return
        except (SignerError, JournalError, identity.IdentityError, recovery.RecoveryError, ValueError) as error:
            raise OSError(str(error)) from error
        loop.add_signal_handler(signal.SIGHUP, service.keys_changed.set)
        await service.run(stop)
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
        await service.stop()


async def _started(service: Service, stop: asyncio.Event) -> bool:
    """Start, unless that is to end before: who stands by waits for a seat as long as others have them all."""
    starting, ending = asyncio.ensure_future(service.start()), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({starting, ending}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            await starting
            return True
        return False
    finally:
        for task in (starting, ending):
            task.cancel()
        await asyncio.gather(starting, ending, return_exceptions=True)


class Service:
    """All parts of a running relayer."""

    def __init__(self, settings: RelayerSettings, tracer: Tracer | None = None) -> None:
        self.settings = settings
        self.tracer = Tracer(settings) if tracer is None else tracer
        self.followed = Followed()
        self.network: NetworkProfile = settings.network()
        self.journal = Journal(Path(settings.data_dir) / "journal.sqlite", settings.mark_path)
        self.api: ChainApi | None = None
        self.keys = Keys(settings, self.journal.path)
        self.peer: Peer | None = None
        self.rounds = Rounds(settings.round_ms)
        self.round_length: RoundLength | None = None
        """Who asks for it; nobody where it is set, and nobody can be asked."""
        gap = settings.max_nonce_gap
        self.lifecycle = Lifecycle(self.network, self.journal, max_nonce_gap=gap, rounds=self.rounds)
        self.statistics = Statistics(self.network, rounds=self.rounds)
        self.lifecycle.sponsor.p90 = self.statistics.gas.p90
        self.tracker = Tracker(rounds=self.rounds)
        self.book = AccountBook()
        kept = Path(settings.data_dir) / policy.KEPT
        file = PolicyFile(settings.policy_file, kept, keeps=True)
        self.policy_keeper = PolicyKeeper(file, settings.policy_file, self.lifecycle, self.journal, self._part_of)
        self.sharing: Sharing | None = None
        """The claims of all relayers with the same keys, where there are several."""
        self._lobby: Lobby | None = None
        """Who answers operators while it waits for a seat among them, until it serves."""
        self._is_unheard = False
        """Whether what was accepted here may have ended while reading went on elsewhere."""
        self._background: set[asyncio.Task[None]] = set()
        self._started = contextlib.AsyncExitStack()
        """How each part that was started is stopped, the last one first."""
        self.port = self.http_port = self.metrics_port = 0
        self._run = new_run()
        self.signers: Signers | None = None
        """Of an edge: those it forwards to."""
        self.edges: Edges | None = None
        """Who forwards to us."""
        self.keys_changed = asyncio.Event()
        """Set to have the key files read again."""

    async def start(self) -> None:
        """Bring everything up, in the order of need."""
        self._check_settings()
        await self._remember()
        await self._load_keys()
        self._make_senders()
        self._make_takers()
        self._make_listeners()
        if self.peer is not None:
            await self.peer.start()
        await self.cosigner.recover()
        self.keys.on_return = self.leases.on_return = self.policy_keeper.on_taken = self._sign_missed
        if self.sharing is not None:
            self.sharing.when_back(self.cosigner.tell_doubted)
        await self.key_balances.refresh()
        await self._serve()

    def _check_settings(self) -> None:
        """Raise `ValueError` for what cannot be meant together."""
        settings = self.settings
        if settings.forward_to and (settings.key_files or settings.key_env):
            raise ValueError("an edge has no keys: leave out forward_to, or key_files and key_env")
        if settings.forward_to and settings.edges:
            raise ValueError("an edge forwards for clients, not for other edges: leave out forward_to, or edges")
        if settings.forward_to and settings.claims_url:
            raise ValueError("an edge claims nothing: leave out forward_to, or claims_url")

    async def _remember(self) -> None:
        """What was accepted, signed and spent here before, and what others with the same keys have."""
        settings = self.settings
        data_dir = Path(settings.data_dir)
        self.identity = identity.read(data_dir)
        identity.check_may_start(data_dir, self.identity)
        self._started.push_async_callback(self.journal.close)
        self.journal.open()
        await self.policy_keeper.begin()
        recovered = recovery.read(data_dir, self.identity, recovery.applied(self.journal.read))
        if settings.chain_api_url:
            self.api = ChainApi(
                settings.chain_api_url,
                settings.chain_api_timeout,
                settings.gossip_bootstrap_url,
                private=settings.outgoing_private,
            )
            self._started.push_async_callback(self.api.close)
            self.round_length = None if settings.round_ms else RoundLength(self.api, self.rounds)
        shared = await self._share(is_whole=recovered is None)
        await self._open_fates()
        self.leases = keeper_of(settings, self.identity, self.journal, shared)
        self._started.push_async_callback(self.leases.close)
        self.safe_start = recovery.SafeStart(self.journal, recovered)
        self.lifecycle.approvals.safe_start = self.safe_start
        await self.safe_start.apply()
        self.lifecycle.sponsor.why_not = self._why_not
        self.history = History(self._history_stores())
        self._started.push_async_callback(self.history.close)
        await self.history.open()

    async def _load_keys(self) -> None:
        """The signing process, and what its keys are bound by: what was accepted here and is not over."""
        self._started.push_async_callback(self._end_background)
        self._started.push_async_callback(self.keys.stop)
        self.keys.own(self.identity.id, self.leases)
        if not self.settings.forward_to:
            await self.keys.load()
        self.lifecycle.is_blind = not self.settings.hub_url
        self.key_balances = KeyBalances(self.api, self.lifecycle.sponsor, lambda: self.relayers().by_shard)
        self.lifecycle.sponsor.balances.watch(self.relayers().by_shard)
        self._restore()
        if self.sharing is not None:
            self.sharing.portions.need = self._need  # not before all that was used is known

    def _make_senders(self) -> None:
        """Who knows accounts, signs what is journalled, sends it, and looks after what is left over."""
        settings = self.settings
        self.accounts = AccountSource(self.book, self.api)
        self.accounts.on_nonce = self.lifecycle.nonce_heard
        self.absent_accounts = AbsentAccounts(self.accounts)
        if self._gossips():
            self.peer = Peer(settings, self.network, self.statistics, self.api, self.relayers().by_shard)
            self._started.push_async_callback(self.peer.stop)
        self.broadcaster = Broadcaster(
            self.network,
            self.peer.publish if self.peer is not None else _publish_nowhere,
            self.api.submit if self.api is not None else None,
            is_wanted=self.lifecycle.is_wanted,
            on_expired=self.lifecycle.expire,
            regossip=settings.regossip_seconds,
            lifetime=settings.lifetime_seconds,
            followed=self.followed,
        )
        self._started.push_async_callback(self.broadcaster.stop)
        self.cosigner = Cosigner(self.lifecycle, lambda: self.signer, self._send)
        self._started.push_async_callback(self.cosigner.close)
        self.tidier = Tidier(
            self.lifecycle,
            self.journal,
            self.fates,
            self.accounts,
            self.cosigner,
            retention_ms=int(settings.retention_hours * HOUR_MS),
            lifetime_ms=int(settings.lifetime_seconds * 1000),
        )

    def _make_takers(self) -> None:
        """Who takes submissions, of clients and of edges."""
        settings = self.settings
        self.simulator: Simulator | None = None
        if self.api is not None and settings.simulate:
            self.simulator = Simulator(self.api, settings.simulation_timeout, rounds=self.rounds)
            self.lifecycle.sponsor.reputation.would_run = self.simulator.said_so
        self.submitter = Submitter(
            self.network,
            self.relayers,
            self.accounts,
            self.lifecycle,
            self.journal,
            self.cosigner,
            settings.sign_wait,
            settings.max_wait,
            self.simulator,
        )
        self.shared = Shared(settings, self.submitter, self.statistics.snapshots(), self.tracer)
        self.gateway = Gateway(self.shared)
        self._join_edges()
        http_most = min(settings.max_http_connections, room_for_connections() // 4)
        self.http_doors = Doors(http_most, settings.max_connections_per_client, self.shared.clients)
        # Beyond their bounds sessions are told so; only a crowd of unfinished handshakes beside them is reset unheard.
        self.ws_doors = Doors(
            min(settings.max_connections + HANDSHAKES, room_for_connections() - http_most),
            settings.max_connections_per_client + HANDSHAKES_PER_CLIENT,
            self.shared.clients,
        )

    def _make_listeners(self) -> None:
        """Who hears from the hub what became of it, and whether all of that works."""
        settings = self.settings
        absent = self.absent_accounts if self.api is not None else None
        self.events = Events(
            self.network,
            self.tracker,
            self.book,
            self.lifecycle,
            self.gateway,
            self.statistics,
            absent,
            followed=self.followed,
            execution_lag=settings.execution_lag,
        )
        self.lifecycle.on_refused = self._tell_refused
        if self.edges is not None:
            self.events.on_unexecutable = self.edges.tell_unexecutable
        if settings.hub_url:
            self.lifecycle.sponsor.untold = lambda shard: self.events.untold(shard, settings.stale_seconds)
        urls = settings.hub_url, *settings.more_hub_urls
        place = self.bookmark.begin(self.events)
        is_unheard = self._is_unheard or (place is None and settings.hub_url and self.lifecycle.inflight)
        if is_unheard and not self.events.gaps:  # a place that could not be read was told of
            self.events.on_gap(1, 1)  # how many is not known
        self.hub = HubClient(urls, self.events, place)
        self.bookmark.follow(self.hub)
        self.events.head = lambda: self.hub.head
        self.window = WindowReader(self.hub, self.network, self.rounds, WINDOW_SECONDS, self.statistics.read_back)
        self.readiness = Readiness(
            self.network,
            self.journal,
            self.keys,
            self.lifecycle,
            self.gateway,
            self.hub,
            has_hub=bool(settings.hub_url),
            why_not=self._why_not,
            gossip=self._gossip_state(),
            execution=self.events.execution,
            round_length=self.round_length,
            signers=self.signers,
        )

    def endless(self) -> list[asyncio.Task[None]]:
        """The tasks that run as long as the service does."""
        work = [
            self.broadcaster.run(),
            self.bookmark.run(),
            self.policy_keeper.run(),
            self._keep_keys(),
            self.key_balances.run(),
            self.tidier.run(),
            self.tidier.overdue.run(),
            self._keep_history(),
            self.statistics.run(
                self.shared.audiences,
                lambda: len(self.shared.stats_sessions),
            ),
            self.gateway.run(),
            self.absent_accounts.run(),
            self.leases.run(),
        ]
        if self.round_length is not None:
            work.append(self.round_length.run())
        if self.settings.hub_url:
            work += [self.hub.run(), self.window.run()]
        if self.sharing is not None:
            work.append(self.sharing.run())
        if self.peer is not None:
            work += self.peer.endless()
        if self.signers is not None:
            work.append(self.signers.run())
        if self.edges is not None:
            work.append(self.edges.run())
        return [asyncio.ensure_future(item) for item in work]

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set and clients have left: up to then they are told everything."""

        async def leave() -> None:
            await stop.wait()
            await self.gateway.leave()

        await wait_first(asyncio.Event(), leave(), *self.endless())  # whichever ends, all of them do

    async def stop(self) -> None:
        """Stop taking, answer what is under way, write everything down, end the children."""
        await self._started.aclose()

    def _join_edges(self) -> None:
        """Forward what has to be signed, or take what edges forward."""
        settings = self.settings
        if settings.forward_to:
            self.signers = signers = Signers(settings, self._tell_never, on_taken=self._taken)
            self.shared.forward = lambda session: ForwardLane(signers, self.shared, session)
        if settings.edges:
            self.edges = Edges(self.shared, self._hello)
            self.gateway.further[wire.PATH] = self.edges.session

    def _hello(self) -> wire.Hello:
        """Who we are to edges."""
        relayers = {shard: address.encode(key) for shard, key in self.relayers().by_shard.items()}
        return wire.Hello(
            self._run, relayers, self.http_port, by_number=True, chain_id=self.network.chain_id, ready=self.is_ready()
        )

    def _tell_refused(self, entry: Entry) -> None:
        """Nobody will sign an accepted transaction: tell our clients, and those of edges."""
        self.events.tell_refused(entry)
        if self.edges is not None:
            self.edges.tell_refused(entry)

    def _tell_never(self, refusal: wire.Refusal) -> None:
        """A relayer that we forward to will never sign what it accepted, or it could not be executed."""
        hashes = map(bytes.fromhex, refusal.hashes)
        self.events.tell_never(hashes, refusal.reason, bytes.fromhex(refusal.chain_hash))

    @property
    def signer(self) -> SigningProcess | None:
        """The signing process, of which there may be another each time; `None` without keys."""
        return self.keys.signer

    def is_ready(self) -> bool:
        """Whether submissions can be accepted and their fate followed."""
        return self.readiness.is_ready()

    def relayers(self) -> Relayers:
        """The public keys that pay, by shard."""
        return self.keys.relayers

    # ---- start

    def _part_of(self, whole: policy.Policy) -> policy.Policy:
        """What of a policy is ours."""
        settings = self.settings
        if not settings.claims_url:
            return whole
        held = PORTIONS if self.sharing is None else self.sharing.portions.held
        whole = self._least(whole)
        return part_of(whole, settings.claims_seats, settings.stale_seconds, held, PORTIONS * settings.claims_seats)

    def _least(self, whole: policy.Policy) -> policy.Policy:
        """A policy as far as those that share its budgets agree."""
        return whole if self.sharing is None else least(whole, map(read_sums, self.sharing.others_sums))

    def _limits(self) -> dict[str, Limits]:
        """Of the policy's programmes, which are not divided: all relayers count together."""
        programmes = self.policy_keeper.whole.programmes
        return {name: Limits(item.budget, item.per_user) for name, item in programmes.items()}

    def _need(self) -> Need:
        """How much of all budgets covers what was used here."""
        whole = self._least(self.policy_keeper.whole)
        return self.lifecycle.sponsor.need(whole, PORTIONS * self.settings.claims_seats)

    async def _share(self, *, is_whole: bool) -> str:
        """Wait for a seat among those with our keys, and take over what it claimed; the id of all, empty if alone.

        `is_whole`: no safe start was made. Raises `JournalError`.
        """
        if not self.settings.claims_url:
            signs = not self.settings.forward_to
            if signs and (shared := self.journal.shared_with()) is not None:
                raise JournalError(
                    f"{self.journal.path.parent} shares its claims with others ({shared}): set `claims_url` again. "
                    "Alone it would sign what they have signed"
                )
            return ""
        if not is_whole or self.journal.read("SELECT 1 FROM imported_claims"):
            raise JournalError(
                f"{self.journal.path.parent} does not know all that was signed with its keys (a safe start was "
                "made, or claims were imported), and could not tell others: share with an empty folder instead, once "
                "lifetime_seconds are over and every sender's nonce is past what was signed"
            )
        self.sharing = sharing_of(self.settings, self.identity, self.journal)
        self._started.push_async_callback(self.sharing.close)
        self.sharing.portions.on_change = self.policy_keeper.again
        self.sharing.sums = lambda: sums_of(self.policy_keeper.whole)
        self.sharing.allowances.limits = self._limits
        self.lifecycle.sponsor.owed_elsewhere = self.sharing.written_off.of_key
        self.lifecycle.sponsor.programmes.shared = self.sharing.allowances
        self._lobby = Lobby(self.settings, self.sharing, self.tracer)
        self._started.push_async_callback(self._lobby.stop)
        await self._lobby.start()
        meanwhile = asyncio.ensure_future(self._pass_on())
        file = Fates(Path(self.settings.data_dir) / FATES)
        to_edges = StandingBy(self.settings, self.journal, file) if self.settings.edges else None
        try:
            if to_edges is not None:
                await to_edges.start()
            await self.sharing.sit()
        finally:
            if to_edges is not None:
                await to_edges.stop()
            meanwhile.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await meanwhile  # what it could not read or do ends the start: it is owed to clients
        self._is_unheard = await reconcile(self.journal, self.sharing)
        self.sharing.start()
        self.journal.sharing = self.sharing
        return await self.sharing.id()

    async def _pass_on(self) -> None:
        if self.api is not None:
            await pass_on(self.journal, self.api, self.settings.lifetime_seconds)

    async def _open_fates(self) -> None:
        """Know what became of earlier transactions; what a new file lacks is filled in while the service runs."""
        self.fates = self.lifecycle.fates.store = Fates(Path(self.settings.data_dir) / FATES)
        has_one = not self.settings.more_hub_urls
        self.bookmark = Bookmark(self.journal, self.fates, self.lifecycle.fates, self.tracker, has_one=has_one)
        self._started.callback(self.bookmark.keep)  # once they are closed
        self._started.push_async_callback(self.fates.close)
        self.lifecycle.fates.restore(await self.fates.open(self.journal.path))
        self.fates.fill(self.journal.path)

    def _gossips(self) -> bool:
        """Whether to run a gossip peer. One that is wanted and not installed is told of here, once.

        Raises `ExtraMissing` when nothing else would take the transactions.
        """
        state = self._gossip_state()
        if state == NOT_INSTALLED:
            if not self.settings.chain_api_url:
                extras.require("gossip", "a relayer without chain_api_url")
            log.warning("no gossip: transactions go through the chain API", extra={"remedy": extras.remedy("gossip")})
        return state == "ok"

    def _gossip_state(self) -> str:
        if not self.settings.gossip:
            return "off"
        return "ok" if is_there(self.settings.gossip_engine) else NOT_INSTALLED

    def _history_stores(self) -> Callable[[], Points]:
        """A connection to a server for each thread, or the one file."""
        if self.settings.history_url:
            return lambda: PostgresPoints(self.settings.history_url, self.settings.history_schema)
        file = SqlitePoints(Path(self.settings.data_dir) / HISTORY)
        return lambda: file

    def _why_not(self) -> str | None:
        """Why nothing may be sponsored now."""
        if self.signer is None:
            return None
        claims = None if self.sharing is None else self.sharing.why_not()
        return self.keys.why_not() or self.safe_start.why_not() or claims or self._why_not_told()

    def _why_not_told(self) -> str | None:
        """Before it is known where reading the events began, whoever has the journal next could not go on there."""
        if self.bookmark.is_known or not self.settings.hub_url or not self.hub.tells_ids:
            return None
        return "the notifier told no event yet: what became of it could not be told"

    async def rotate(self) -> None:
        """Read the key files again in a new signing process; if they cannot be used the old keys stay."""
        try:
            await self.keys.load()
        except SignerError as error:
            log.error("the keys are not replaced", extra={"reason": str(error)})
        else:
            await self.key_balances.refresh()
            await self.cosigner.sign_missed()

    def _sign_missed(self) -> None:
        """A signing process is back, or another policy holds: sign what was journalled and is not signed."""
        self._keep_running(self._sign_again())

    def _keep_running(self, work: Coroutine[Any, Any, None]) -> None:
        """Start what ends by itself; the service waits for it when it stops."""
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _sign_again(self) -> None:
        if await self.keys.may_sign_again():
            await self.cosigner.sign_missed()

    def _restore(self) -> None:
        now = time.time_ns() // 1_000_000
        records = self.journal.open_records()
        try:
            self.lifecycle.sponsor.restore(
                records,
                self.journal.spent_since(now - DAY_MS) + self._unknown_since(now - DAY_MS),
                self.journal.origins_since(now - DAY_MS, now - HOUR_MS),
                self.journal.outcomes_since(now - HOUR_MS),
                self.journal.undecided_since(now - HOUR_MS),
            )
            self.lifecycle.restore(records)
        except JournalError as error:
            raise JournalError(f"{self.journal.path}: {error}") from None
        if records:
            log.info("transactions in flight taken over from the journal", extra={"count": len(records)})

    def _unknown_since(self, time_ms: int) -> list[Spent]:
        """What may have been spent without our journal since then."""
        charges = self.safe_start.charges(self.relayers().by_shard.values(), self.lifecycle.sponsor.policy.budget)
        return [item for item in charges if item.time_ms >= time_ms]

    async def _end_background(self) -> None:
        await asyncio.gather(*self._background, return_exceptions=True)

    async def _serve(self) -> None:
        """Begin to listen, at last, on all ports; until this has stopped nothing that it uses may."""
        ports = Ports(self.measured(), self.submitter, self.readiness, self.history, self.keys_changed.set)
        self._started.push_async_callback(ports.stop)
        if self._lobby is not None:
            await self._lobby.stop()
        await ports.start()
        self.http_port, self.metrics_port = ports.http, ports.metrics
        await ports.open_gateway()
        self.port = ports.websocket
        log.info(
            "ready",
            extra={
                "port": self.port,
                "http_port": self.http_port,
                "metrics_port": self.metrics_port,
                "profile": self.network.name,
                "chain_id": self.network.chain_id,
                "shard_rule": self.network.shard_rule,
                "topic_scheme": self.network.topic_scheme,
            },
        )

    # ---- what runs on

    def _taken(self, items: Sequence[Taken]) -> None:
        """A relayer that we forward to has accepted these: now, or earlier where a block has ended them since."""
        for item in items:
            if not (item.waits and self.tracker.has_ended(item.tx_hash)):
                self.statistics.submitted(item.tx_hash, waits=item.waits)

    def _send(self, entry: Entry) -> None:
        if entry.trace is not None:
            self.followed.begin(entry, entry.trace)
        self.statistics.submitted(entry.chain_hash, is_new=not entry.recovered)
        self.broadcaster.send(entry)

    async def _keep_keys(self) -> None:
        """Read the key files again when that is asked for, once at a time however often it is asked."""
        while True:
            await self.keys_changed.wait()
            self.keys_changed.clear()
            await self.rotate()

    async def _keep_history(self) -> None:
        while True:
            await asyncio.sleep(HISTORY_SECONDS)
            numbers = flatten(self.statistics.payload(len(self.shared.stats_sessions)))
            await self.history.add(time.time_ns() // 1_000_000, numbers)

    # ---- looking in

    def measured(self) -> Measured:
        """What metrics are read from."""
        return Measured(
            api=self.api,
            journal=self.journal,
            policy_rejected=lambda: bool(self.policy_keeper.rejected),
            fates=self.fates,
            signer=lambda: self.signer,
            relayers=self.relayers,
            lifecycle=self.lifecycle,
            book=self.book,
            tracker=self.tracker,
            events=self.events,
            hub=self.hub,
            accounts=self.accounts,
            absent_accounts=self.absent_accounts,
            statistics=self.statistics,
            history=self.history,
            admission=self.submitter.admission,
            broadcaster=self.broadcaster,
            peer=self.peer,
            shared=self.shared,
            gateway=self.gateway,
            ws_doors=self.ws_doors,
            http_doors=self.http_doors,
            is_ready=self.readiness.is_ready,
            leases=self.leases,
            sharing=self.sharing,
            simulator=self.simulator,
            signers=self.signers,
            edges=self.edges,
        )


async def _publish_nowhere(topic: str, data: bytes) -> int:
    return 0
