"""Wires the relayer: journal, signing process, gossip peer, hub client, WebSocket and REST servers."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import time
from pathlib import Path

from millrace.chain.network import NetworkProfile
from millrace.relayer import policy
from millrace.relayer.absent_accounts import AbsentAccounts
from millrace.relayer.account_source import AccountSource
from millrace.relayer.accounts import AccountBook
from millrace.relayer.broadcaster import Broadcaster
from millrace.relayer.chain_api import ChainApi, ChainApiError
from millrace.relayer.cosigning import Cosigner
from millrace.relayer.desk import Desk
from millrace.relayer.events import Events
from millrace.relayer.given_up import GivenUp
from millrace.relayer.history import History, flatten
from millrace.relayer.history_store import Points, PostgresPoints, SqlitePoints
from millrace.relayer.hub_client import HubClient
from millrace.relayer.inflight import Entry
from millrace.relayer.journal import Journal
from millrace.relayer.journal_writer import JournalError
from millrace.relayer.limits import TokenBuckets
from millrace.relayer.metrics import make_registry
from millrace.relayer.peer import Peer
from millrace.relayer.rest import RestApi
from millrace.relayer.settings import RelayerSettings
from millrace.relayer.signing import SignerError, SigningProcess, where_keys_are
from millrace.relayer.stages import Relayers
from millrace.relayer.statistics import Statistics
from millrace.relayer.submission import Submitter
from millrace.relayer.tracker import Tracker
from millrace.relayer.ws import Gateway
from millrace.runtime import http
from millrace.runtime.doors import Doors, room_for_connections
from millrace.runtime.origins import Origins
from millrace.runtime.process import wait_first

log = logging.getLogger(__name__)

CURSOR_SECONDS = 1.0
POLICY_SECONDS = 1.0
BALANCE_SECONDS = 15.0
RETRY_SECONDS = 1.0
HISTORY_SECONDS = 1.0
TIDY_SECONDS = 60.0
TIDY_ACCOUNTS = 64
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
HANDSHAKES, HANDSHAKES_PER_CLIENT = 1_000, 100
"""WebSocket connections without a finished handshake, beside as many sessions as there may be."""


async def run(settings: RelayerSettings, stop: asyncio.Event) -> None:
    """Serve until `stop` is set. Raises `OSError` when a port is taken or the keys cannot be used."""
    service = Service(settings)
    # What is kept of transactions and accounts is not walked at all (`gc=False`). The rest is walked in short pauses of
    # about a millisecond while it is young, and hardly ever as a whole.
    gc.set_threshold(5_000, 20, 500)
    loop = asyncio.get_running_loop()
    try:
        try:
            await service.start()
        except (SignerError, JournalError, ValueError) as error:
            raise OSError(str(error)) from error
        loop.add_signal_handler(signal.SIGHUP, service.keys_changed.set)
        await wait_first(stop, *service.endless())
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
        await service.stop()


class Service:
    """All parts of a running relayer."""

    def __init__(self, settings: RelayerSettings) -> None:
        self.settings = settings
        self.network: NetworkProfile = settings.network()
        self.started = time.monotonic()
        self.journal = Journal(Path(settings.data_dir) / "journal.sqlite")
        self.api: ChainApi | None = None
        self.signer: SigningProcess | None = None
        self.peer: Peer | None = None
        self.desk = Desk(self.network, self.journal, max_nonce_gap=settings.max_nonce_gap)
        self.statistics = Statistics(self.network)
        self.desk.treasury.p90 = self.statistics.gas.p90
        self.tracker = Tracker()
        self.book = AccountBook()
        self._policy_file = policy.PolicyFile(settings.policy_file)
        self._keys = where_keys_are(settings, self.journal.path)
        self._background: set[asyncio.Task[None]] = set()
        self.keys_changed = asyncio.Event()
        """Set to have the key files read again."""

    async def start(self) -> None:
        """Bring everything up, in the order of need."""
        settings = self.settings
        self._read_policy()
        self.journal.open()
        if settings.chain_api_url:
            self.api = ChainApi(
                settings.chain_api_url,
                settings.chain_api_timeout,
                settings.gossip_bootstrap_url,
                private=settings.outgoing_private,
            )
        self.history = History(self._history_store)
        await self._start_signer()
        self._restore()
        self.accounts = AccountSource(self.book, self.api)
        self.accounts.on_nonce = self.desk.nonce_heard
        self.absent_accounts = AbsentAccounts(self.accounts)
        if settings.gossip:
            self.peer = Peer(settings, self.network, self.statistics, self.api, self.relayers().by_shard)
        self.broadcaster = Broadcaster(
            self.network,
            self.peer.publish if self.peer is not None else _publish_nowhere,
            self.api.submit if self.api is not None else None,
            is_wanted=self.desk.is_wanted,
            on_expired=self.desk.expire,
            regossip=settings.regossip_seconds,
            lifetime=settings.lifetime_seconds,
        )
        self.cosigner = Cosigner(self.desk, lambda: self.signer, self._send)
        self.submitter = Submitter(self.network, self.relayers, self.accounts, self.desk, self.journal, self.cosigner)
        self.gateway = Gateway(settings, self.submitter, self.statistics.snapshots())
        http_most = min(settings.max_http_connections, room_for_connections() // 4)
        self.http_doors = Doors(http_most, settings.max_connections_per_client, self.gateway.clients)
        # Beyond their bounds sessions are told so; only a crowd of unfinished handshakes beside them is reset unheard.
        self.ws_doors = Doors(
            min(settings.max_connections + HANDSHAKES, room_for_connections() - http_most),
            settings.max_connections_per_client + HANDSHAKES_PER_CLIENT,
            self.gateway.clients,
        )
        absent = self.absent_accounts if self.api is not None else None
        self.events = Events(self.network, self.tracker, self.book, self.desk, self.gateway, self.statistics, absent)
        if settings.hub_url:
            self.desk.treasury.silence = lambda shard: self.events.silence(shard, settings.stale_seconds)
        self.hub = HubClient(settings.hub_url, self.events, self.journal.cursor())
        self.events.head = lambda: self.hub.head
        if self.peer is not None:
            await self.peer.start()
        await self.cosigner.recover()
        await self._serve()

    def endless(self) -> list[asyncio.Task[None]]:
        """The tasks that run as long as the service does."""
        work = [
            self.broadcaster.run(),
            self._keep_cursor(),
            self._keep_policy(),
            self._keep_keys(),
            self._keep_balances(),
            self._tidy(),
            self._keep_history(),
            self.statistics.run(self.gateway),
            self.gateway.run(),
            self.absent_accounts.run(),
        ]
        if self.settings.hub_url:
            work.append(self.hub.run())
        if self.peer is not None:
            work += self.peer.endless()
        return [asyncio.ensure_future(item) for item in work]

    async def stop(self) -> None:
        """Stop taking, answer what is under way, write everything down, end the children."""
        if hasattr(self, "gateway"):
            await self.gateway.stop()
        if hasattr(self, "http"):
            await self.http.stop()
        if hasattr(self, "broadcaster"):
            await self.broadcaster.stop()
        if self.peer is not None:
            await self.peer.stop()
        if self.signer is not None:
            await self.signer.stop()
        await asyncio.gather(*self._background, return_exceptions=True)
        if hasattr(self, "hub"):
            self._write_cursor()
        await self.journal.close()
        if hasattr(self, "history"):
            await self.history.close()
        if self.api is not None:
            await self.api.close()

    def relayers(self) -> Relayers:
        """The public keys that pay, by shard."""
        return Relayers(self.signer.relayers if self.signer is not None else {})

    # ---- start

    def _history_store(self) -> Points:
        if self.settings.history_url:
            return PostgresPoints(self.settings.history_url, self.settings.history_schema)
        return SqlitePoints(Path(self.settings.data_dir) / "history.sqlite")

    async def _start_signer(self) -> None:
        if not self._keys.key_files and not self._keys.key_env:
            log.warning("no keys are set: relay and sign are refused")
            return
        signer = SigningProcess(self._keys, self.settings.signer_timeout)
        signer.on_return = self._sign_missed
        try:
            await signer.start()
        except asyncio.CancelledError:
            await signer.stop()
            raise
        self.signer, old = signer, self.signer
        log.info("keys are loaded", extra={"shards": sorted(signer.relayers)})
        if old is not None:
            await old.stop()

    async def rotate(self) -> None:
        """Read the key files again in a new signing process; if they cannot be used the old keys stay."""
        try:
            await self._start_signer()
        except SignerError as error:
            log.error("the keys are not replaced", extra={"reason": str(error)})
        else:
            await self.cosigner.sign_missed()

    def _sign_missed(self) -> None:
        """A signing process is back: sign what was journalled while there was none."""
        task = asyncio.ensure_future(self.cosigner.sign_missed())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _restore(self) -> None:
        now = time.time_ns() // 1_000_000
        records = self.journal.open_records()
        try:
            self.desk.treasury.restore(
                records,
                self.journal.spent_since(now - DAY_MS),
                self.journal.ips_since(now - HOUR_MS),
                self.journal.outcomes_since(now - HOUR_MS),
                self.journal.undecided_since(now - HOUR_MS),
            )
            self.desk.restore(records)
        except JournalError as error:
            raise JournalError(f"{self.journal.path}: {error}") from None
        if records:
            log.info("transactions in flight taken over from the journal", extra={"count": len(records)})

    async def _serve(self) -> None:
        port = await self.gateway.start(self.ws_doors)
        app = http.make_app(max_body=self.settings.max_message_bytes)
        rest = RestApi(
            self.submitter,
            TokenBuckets(self.settings.request_rate, self.settings.request_burst),
            self.gateway.submissions,
            self.gateway.bytes,
            self.gateway.unfinished,
            self.gateway.clients,
            self.settings.max_batch,
            self.health,
            self.is_ready,
            self.gateway.count,
            lambda start, end, step: self.history.query(start, end, step, time.time_ns() // 1_000_000),
        )
        app.middlewares.append(rest.guard)
        app.add_routes(rest.routes(make_registry(self)))
        self.http = http.HttpServer(app, doors=self.http_doors, origins=Origins(self.settings.allowed_origins))
        http_port = await self.http.start(self.settings.host, self.settings.http_port)
        log.info(
            "ready",
            extra={
                "port": port,
                "http_port": http_port,
                "profile": self.network.name,
                "chain_id": self.network.chain_id,
                "shard_rule": self.network.shard_rule,
                "topic_scheme": self.network.topic_scheme,
            },
        )
        self.port, self.http_port = port, http_port

    # ---- what runs on

    def _send(self, entry: Entry) -> None:
        self.statistics.submitted(entry.chain_hash)
        self.broadcaster.send(entry)

    async def _keep_cursor(self) -> None:
        while True:
            await asyncio.sleep(CURSOR_SECONDS)
            self._write_cursor()

    def _write_cursor(self) -> None:
        """Write down how far the events need not be read again."""
        low = self.tracker.low_water
        last = self.hub.last if low is None else low - 1
        if last is not None:
            self.journal.keep_cursor(last)

    async def _keep_policy(self) -> None:
        wrong = ""
        while True:
            await asyncio.sleep(POLICY_SECONDS)
            try:
                self._write_off()
            except JournalError as error:  # the next second asks again
                log.error("what is to be written off cannot be read", extra={"error": str(error)})
            try:
                self._read_policy()
                wrong = ""
            except policy.PolicyError as error:
                if str(error) != wrong:
                    log.error("the policy file is not used: the last good one holds", extra={"error": str(error)})
                wrong = str(error)

    async def _keep_keys(self) -> None:
        """Read the key files again when that is asked for, once at a time however often it is asked."""
        while True:
            await self.keys_changed.wait()
            self.keys_changed.clear()
            await self.rotate()

    def _read_policy(self) -> None:
        """Take over the policy file if it changed. Raises `PolicyError` when it cannot be used."""
        if self._policy_file.refresh():
            self.desk.treasury.policy = self._policy_file.policy
            log.info("policy read", extra={"file": self.settings.policy_file})

    def _write_off(self) -> None:
        """Write off what an operator asked for by `millrace policy write-off`."""
        for client_hash in self.journal.write_offs():
            if self.desk.write_off(client_hash):
                log.warning("written off", extra={"client_hash": client_hash.hex()})

    async def _keep_balances(self) -> None:
        """Ask for the balances of the relayer keys: the event stream does not carry fees they pay."""
        treasury = self.desk.treasury
        while self.api is not None:
            pause = BALANCE_SECONDS
            for shard, key in self.relayers().by_shard.items():
                try:
                    account = await self.api.account(key)
                except ChainApiError:
                    pause = RETRY_SECONDS
                    continue
                treasury.balances[key] = account.balance
                if account.balance < treasury.policy.budget.alert_balance:
                    log.warning("relayer balance is low", extra={"shard": shard, "balance": str(account.balance)})
                if account.guardian:
                    log.error(
                        "this relayer's account is guarded: nodes refuse what it pays for", extra={"shard": shard}
                    )
            await asyncio.sleep(pause)
        await asyncio.Event().wait()

    async def _keep_history(self) -> None:
        while True:
            await asyncio.sleep(HISTORY_SECONDS)
            numbers = flatten(self.statistics.payload(len(self.gateway.stats_sessions)))
            await self.history.add(time.time_ns() // 1_000_000, numbers)

    async def _tidy(self) -> None:
        """Forget what is long over, and find out what became of transactions that were given up."""
        given_up = GivenUp(self.desk.inflight, self.accounts)
        while True:
            retention_ms = int(self.settings.retention_hours * 3_600_000)
            self.journal.prune(time.time_ns() // 1_000_000 - retention_ms)
            self.desk.treasury.prune()
            self.desk.drop_given_up(time.time_ns() // 1_000_000 - int(self.settings.lifetime_seconds * 1000))
            await given_up.ask(TIDY_ACCOUNTS)
            await asyncio.sleep(TIDY_SECONDS)

    # ---- looking in

    def is_ready(self) -> bool:
        """Whether submissions can be accepted and their fate followed."""
        hub_ok = self.hub.connected or not self.settings.hub_url
        signer_ok = self.signer is None or self.signer.running
        return hub_ok and signer_ok and self.journal.failed is None

    def health(self) -> dict[str, object]:
        """The body of GET /health."""
        return {
            "status": "ok" if self.is_ready() else "degraded",
            "uptimeSeconds": int(time.monotonic() - self.started),
            "profile": self.network.name,
            "chainId": self.network.chain_id,
            "hub": {"connected": self.hub.connected, "last": self.hub.last, "head": self.hub.head},
            "signer": self.signer is not None and self.signer.running,
            "journal": self.journal.failed or "ok",
            "inFlight": len(self.desk.inflight),
            "connections": self.gateway.connections,
        }


async def _publish_nowhere(topic: str, data: bytes) -> int:
    return 0
