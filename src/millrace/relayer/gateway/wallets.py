"""What wallets ask over HTTP: whom to name as relayer, what would be sponsored, and what became of a transaction."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Literal

import msgspec
from aiohttp import web
from msgspec import UNSET

from millrace.chain import address
from millrace.chain.network import NetworkProfile
from millrace.relayer.gateway.replies import submission_reply
from millrace.relayer.gateway.rest import RestApi
from millrace.relayer.journal.fates import Fate, FatesUnavailable
from millrace.relayer.ledger.inflight import Entry
from millrace.relayer.ledger.lifecycle import Lifecycle
from millrace.relayer.ledger.sponsor import Sponsor
from millrace.relayer.protocol import reasons, wallets
from millrace.relayer.protocol.messages import ResultItem
from millrace.relayer.protocol.reasons import Refused
from millrace.relayer.protocol.wallets import (
    BlockItem,
    GasRules,
    RelayedItem,
    RelayerItem,
    RelayersReply,
    RelayReply,
    SponsorCaps,
    TransactionReply,
)
from millrace.relayer.rules import policy
from millrace.relayer.rules.stages import Relayers
from millrace.relayer.submission.preparer import Preparer
from millrace.runtime import http

PATIENCE, LONGEST_PATIENCE = 30.0, 60.0
"""Seconds that `wait=final` waits by default, and at most."""
GONE_SECONDS = 1.0
"""After so long at most the room of a client that hung up while it waited is another's."""
HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)
UNKNOWN = "transaction not known: it was not accepted here, or too long ago"
_SECONDS = re.compile(r"[0-9]{1,3}", re.ASCII)

RelayerState = Literal["ready", "paused", "short of funds", "not ready"]


class WalletApi:
    """Handlers of the service's HTTP port, beside those of `RestApi`, whose limits they share."""

    def __init__(
        self,
        rest: RestApi,
        preparer: Preparer,
        network: NetworkProfile,
        relayers: Callable[[], Relayers],
        lifecycle: Lifecycle,
        is_ready: Callable[[], bool],
        max_nonce_gap: int,
    ) -> None:
        self._rest = rest
        self._preparer = preparer
        self._network = network
        self._relayers = relayers
        self._lifecycle = lifecycle
        self._is_ready = is_ready
        self._max_nonce_gap = max_nonce_gap

    def routes(self) -> list[web.RouteDef]:
        """What to add to the application."""
        return [
            web.get("/v1/relayers", self._get_relayers),
            web.get("/v1/transactions/{hash}", self._get_transaction),
            web.post("/v1/prepare", self._prepare),
            web.post("/v1/relay", self._relay),
        ]

    async def _get_relayers(self, _: web.Request) -> web.Response:
        network, sponsor = self._network, self._lifecycle.sponsor
        caps, gas = sponsor.policy.caps, network.gas
        reply = RelayersReply(
            profile=network.name,
            chain_id=network.chain_id,
            shard_rule=network.shard_rule,
            shards=network.shards,
            relayers=[
                RelayerItem(
                    shard,
                    address.encode(key),
                    _state_of(sponsor, shard, key, is_ready=self._is_ready()),
                    policy.gas_price_cap(caps, sponsor.p90(shard)),
                )
                for shard, key in sorted(self._relayers().by_shard.items())
            ],
            caps=SponsorCaps(caps.gas_price, caps.gas_limit, str(caps.fee), str(caps.value), caps.data_bytes),
            gas=GasRules(
                gas.min_gas_price, gas.min_gas_limit, gas.gas_per_data_byte, gas.extra_relayed, gas.extra_guarded
            ),
            max_nonce_gap=self._max_nonce_gap,
        )
        return http.json_response(reply)

    async def _get_transaction(self, request: web.Request) -> web.Response:
        text = request.match_info["hash"]
        if not HASH.fullmatch(text):
            return http.error_response("invalid transaction hash: a hash is 64 lower-case hex digits", 400)
        try:
            found = await self._lifecycle.fates.find(bytes.fromhex(text))
        except FatesUnavailable as error:
            return http.error_response(str(error), 503, {"Retry-After": "1"})
        if found is None:
            return http.error_response(UNKNOWN, 404)
        return http.json_response(transaction_reply(text, *found))

    async def _prepare(self, request: web.Request) -> web.Response:
        body, marked, client = await self._rest.read_body(request)
        asked = wallets.decode_prepare(body, marked)
        self._rest.charge_submissions(client, 1)
        return http.json_response(await self._preparer.prepare(asked, self._rest.origin(request, "relay")))

    async def _relay(self, request: web.Request) -> web.Response:
        patience = patience_of(request)
        waiting: dict[bytes, asyncio.Future[Fate]] = {}
        fates, client = self._lifecycle.fates, self._rest.client(request)

        def announce(entry: Entry) -> None:
            if patience is not None and entry.end is None and entry.client_hash not in waiting:
                future = fates.wait(entry, client)
                if future is not None:
                    waiting[entry.client_hash] = future

        try:
            reply = submission_reply("relay", await self._rest.submit(request, "relay", announce))
            if patience is not None:
                await _wait(request, set(waiting.values()), patience)
        finally:
            for client_hash, future in waiting.items():
                fates.forget(client_hash, client, future)
        results = [await self._relayed(item, waiting, known=patience is not None) for item in reply.results]
        return http.json_response(RelayReply(reply.action, reply.status, reply.hashes, reply.failed, results))

    async def _relayed(
        self, item: ResultItem, waiting: dict[bytes, asyncio.Future[Fate]], *, known: bool
    ) -> RelayedItem:
        """A result of the reply, with what is `known` of its transaction if that was asked for."""
        relayed = RelayedItem(**msgspec.structs.asdict(item))
        if not known:
            return relayed
        future = waiting.get(bytes.fromhex(item.client_hash))
        try:
            if future is not None and future.done():
                found: tuple[Fate, Entry | None] | None = future.result(), None
            else:
                found = await self._lifecycle.fates.find(bytes.fromhex(item.client_hash))
        except FatesUnavailable:
            return relayed
        if found is None:
            return relayed
        return msgspec.structs.replace(relayed, transaction=transaction_reply(item.hash, *found))


async def _wait(request: web.Request, ends: set[asyncio.Future[Fate]], patience: float) -> None:
    """Wait for these, for so many seconds at most, and no longer than the client does."""
    loop = asyncio.get_running_loop()
    until = loop.time() + patience
    while ends and request.transport is not None and (left := until - loop.time()) > 0:
        _, ends = await asyncio.wait(ends, timeout=min(left, GONE_SECONDS))


def transaction_reply(asked: str, fate: Fate, entry: Entry | None) -> TransactionReply:
    """What is known of a transaction that was asked for by this hash; `entry` while it is in flight."""
    place = fate.place
    block = UNSET if place is None else BlockItem(place.shard, place.nonce, place.block_hash.hex(), place.timestamp_ms)
    return TransactionReply(
        hash=asked,
        state=fate.state,
        client_hash=fate.client_hash.hex(),
        sender=address.encode(fate.sender),
        nonce=fate.nonce,
        action=fate.kind,  # type: ignore[arg-type]
        payer=address.encode(fate.relayer or fate.sender),
        max_fee=fate.max_fee,
        fee=UNSET if fate.fee is None else fate.fee,
        reason=fate.reason or UNSET,
        chain_hash=fate.chain_hash.hex() or UNSET,
        sdk_hash=fate.sdk_hash.hex() or UNSET,
        block=block,
        sending=entry is not None and entry.sending and entry.state == "signed",
    )


def _state_of(sponsor: Sponsor, shard: int, key: bytes, *, is_ready: bool) -> RelayerState:
    """Whether the key of a shard pays now. Its own lack comes first: it may be why the service is not ready."""
    condition = sponsor.state_of(key).condition
    if condition == "ok":
        return "ready" if is_ready and sponsor.untold(shard) is None else "not ready"
    return "not ready" if condition == "unknown balance" else condition


def patience_of(request: web.Request) -> float | None:
    """For how many seconds the client wants to wait for ends, if it does. Raises `Refused`."""
    wait, seconds = request.query.get("wait"), request.query.get("timeout")
    if wait not in (None, "final"):
        raise Refused(reasons.INVALID_MESSAGE.but("wait: only `final` is known"))
    if seconds is not None and not (_SECONDS.fullmatch(seconds) and int(seconds) <= LONGEST_PATIENCE):
        raise Refused(reasons.INVALID_MESSAGE.but(f"timeout: whole seconds, at most {LONGEST_PATIENCE:.0f}"))
    if wait is None:
        return None
    return PATIENCE if seconds is None else float(seconds)
