"""Client of a relayer: who pays, what would be paid for, submissions with their handles, and streams."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Mapping
from typing import Any, Self, TypeVar, cast

import msgspec

from millrace_client import address
from millrace_client.checks import checked_prepared, most_gas
from millrace_client.errors import ClientError, Mismatch, Refused, Unreachable
from millrace_client.handle import Handle
from millrace_client.http import Http, Patience, Traceparent, without_none
from millrace_client.inbox import Inbox
from millrace_client.link import MAX_TOPICS, Link, Reply
from millrace_client.mailbox import Policy, Subscription
from millrace_client.messages import (
    AccountDelta,
    GasRules,
    GasStats,
    History,
    NetworkStats,
    Outcome,
    Prepared,
    Push,
    Readiness,
    RelayerKey,
    Relayers,
    Signed,
    Submission,
)
from millrace_client.submitted import Submitted, Submitting, only
from millrace_client.transaction import GUARDED, Transaction, replaced

T = TypeVar("T")

MAX_LINKS = 64
"""Connections of one client: 3 840 topics at 60 each."""
_MOST_AT_ONCE = 100
_RELAYERS_SECONDS = 60.0
_CHAIN_STATES = {"success": "success", "fail": "fail", "invalid": "fail"}


class Relayer:
    """Hands transactions to a relayer and hears what becomes of them.

    `url` is its REST address, `ws_url` that of its WebSocket up to `/ws`. What a deployment does not tell can be given:
    `relayers` where it has no `/v1/relayers` or its network's gas rules are others than the live ones', `chain_api_url`
    for nonces and statuses. `api_key` is that of a person the operator knows. `max_gas_price`: none above it is
    signed; without it ten times what a transaction asks for. `traceparent` gives the W3C trace
    context of each question and submission.
    """

    def __init__(
        self,
        url: str,
        ws_url: str,
        *,
        timeout: float = 10.0,
        patience: Patience | None = None,
        headers: Mapping[str, str] | None = None,
        api_key: str | None = None,
        relayers: Relayers | None = None,
        chain_api_url: str | None = None,
        max_gas_price: int | None = None,
        traceparent: Traceparent | None = None,
    ) -> None:
        self._max_gas_price, self._traceparent = max_gas_price, traceparent
        self._timeout, self._patience = timeout, patience or Patience()
        own = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        self._http = Http(url, timeout, self._patience, {**(headers or {}), **own}, traceparent)
        self._chain = None if chain_api_url is None else Http(chain_api_url, timeout, self._patience, {})
        self._ws_url, self._relayers = ws_url.rstrip("/"), relayers
        self._known: tuple[float, Relayers] | None = None
        """What `/v1/relayers` said, and when."""
        self._links: list[Link] = []
        self._is_closed = False
        self._stats: Link | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End every connection; handles and subscriptions hear nothing more."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        links = [*self._links, *([self._stats] if self._stats else [])]
        self._links.clear()
        await asyncio.gather(*(link.close() for link in links))
        await self._http.close()
        if self._chain is not None:
            await self._chain.close()

    # ---- before signing

    async def relayers(self) -> Relayers:
        """Who pays on this network, and by which rules; remembered for a minute."""
        if self._relayers is not None:
            return self._relayers
        if self._known is None or time.monotonic() - self._known[0] > _RELAYERS_SECONDS:
            self._known = time.monotonic(), await self._http.get("/v1/relayers", Relayers)
        return self._known[1]

    async def relayer_of(self, account: str) -> RelayerKey:
        """Whom `account` names as `relayer`. Raises `Refused` where nobody pays for its shard."""
        told = await self.relayers()
        shard = address.shard_of(address.decode(account), told.shard_rule, told.shards)
        for key in told.relayers:
            if key.shard == shard:
                return key
        detail = f"nobody pays for shard {shard}, in which {account} lives: broadcast, and pay for it yourself"
        raise Refused("no relayer", code="no_relayer", detail=detail)

    async def prepare(self, transaction: Transaction) -> Transaction:
        """The transaction to sign: with nonce, relayer, the gas that costs, and the network's gas price.

        Raises `Refused` where it would not be sponsored, in the words of `relay`, and `Mismatch` where the relayer
        gives something else to sign than was asked.
        """
        try:
            told = await self._http.post("/v1/prepare", Prepared, {"transaction": _wanted(transaction)})
        except Refused as refused:
            if refused.status not in (404, 405):
                raise
            return self._checked(transaction, await self._prepare_here(transaction))
        if told.transaction is None or not told.sponsored:
            after = None if told.retry_after_ms is None else told.retry_after_ms / 1000
            raise Refused(
                told.reason or "not sponsored", code=told.code or "", detail=told.detail or "", retry_after=after
            )
        return self._checked(transaction, told.transaction)

    async def prepare_all(self, transactions: list[Transaction]) -> list[Transaction]:
        """Several of one sender, to be sent in their order: the nonces follow each other. Raises as `prepare` does."""
        if not transactions:
            return []
        first = await self.prepare(transactions[0])
        gas = (await self.relayers()).gas
        rest = [
            self._checked(
                transaction,
                replaced(
                    transaction,
                    nonce=(first.nonce or 0) + place,
                    relayer=first.relayer,
                    gas_price=first.gas_price,
                    gas_limit=most_gas(transaction, gas),
                    guardian=transaction.guardian if transaction.options & GUARDED else "",
                ),
            )
            for place, transaction in enumerate(transactions[1:], 1)
        ]
        return [first, *rest]

    def _checked(self, asked: Transaction, told: Transaction) -> Transaction:
        """By rules of whoever made this client, or the live network's: the relayer's own would allow anything."""
        gas = GasRules() if self._relayers is None else self._relayers.gas
        return checked_prepared(asked, told, gas, self._max_gas_price)

    async def _prepare_here(self, transaction: Transaction) -> Transaction:
        """The same for a relayer that does not prepare, from its rules and the chain API."""
        told = await self.relayers()
        if told.chain_id != transaction.chain_id:
            raise Mismatch("relayer", "chainID", told.chain_id, transaction.chain_id)
        nonce = await self.nonce_of(transaction.sender) if transaction.nonce is None else transaction.nonce
        if nonce is None:
            raise ClientError("the relayer does not prepare transactions: give a chain_api_url, which tells the nonce")
        # A gas limit that was given with a relayer is enough for it, as it is at a service that prepares.
        limit = transaction.gas_limit if transaction.relayer else 0
        return replaced(
            transaction,
            nonce=nonce,
            relayer=transaction.relayer or (await self.relayer_of(transaction.sender)).address,
            gas_price=max(transaction.gas_price, told.gas.min_gas_price),
            gas_limit=limit or most_gas(transaction, told.gas),
            guardian=transaction.guardian if transaction.options & GUARDED else "",
        )

    async def nonce_of(self, account: str) -> int | None:
        """The next nonce of an account by the chain API; None without one."""
        return None if self._chain is None else (await self._chain.get(f"/accounts/{account}", _Account)).nonce

    # ---- submissions

    async def relay(self, transaction: Transaction) -> Handle:
        """Have a signed transaction co-signed, paid for and sent. Raises `Refused` and `Unreachable`."""
        return only(await self._submit("relay", [transaction]))

    async def broadcast(self, transaction: Transaction) -> Handle:
        """Have a fully signed transaction sent; its sender pays. Raises `Refused` and `Unreachable`."""
        return only(await self._submit("broadcast", [transaction]))

    async def relay_all(self, transactions: list[Transaction]) -> Submitted:
        """The same of several, each of which is accepted or refused by itself. Raises `Refused` of them as a whole."""
        return await self._submit("relay", transactions)

    async def broadcast_all(self, transactions: list[Transaction]) -> Submitted:
        """The same of several."""
        return await self._submit("broadcast", transactions)

    async def relay_once(self, transactions: list[Transaction], *, wait: float | None = None) -> Submission:
        """Have transactions co-signed and sent in one request, over HTTP alone. Raises `Refused` of them as a whole.

        With `wait` the answer comes when all have ended, or after so many seconds with what is known then.
        """
        query = {} if wait is None else {"wait": "final", "timeout": f"{wait:g}"}
        body = {"transactions": transactions}
        return await self._http.post("/v1/relay", Submission, body, query, extra_seconds=wait or 0.0)

    async def follow(self, transaction: Transaction) -> Handle:
        """The handle of a signed transaction that was sent already, or that somebody else sends; sends nothing."""
        handle = Handle(transaction, self)
        await self.listen(handle.topic, handle)
        return handle

    async def co_sign(self, transactions: list[Transaction]) -> Signed:
        """Have transactions co-signed and sent nowhere. Raises `Refused`."""
        return await self._http.post("/v1/sign", Signed, {"transactions": transactions})

    async def outcome(self, tx_hash: str, chain_hash: str | None = None) -> Outcome | None:
        """What is known of a transaction by any of its hashes; None: nothing. Raises `Refused` and `Unreachable`.

        Where the relayer cannot say, the chain API is asked, which knows a sponsored one by its `chain_hash` only.
        """
        try:
            return await self._http.get(f"/v1/transactions/{tx_hash}", Outcome)
        except ClientError as error:
            if self._chain is None and not (isinstance(error, Refused) and error.status == 404):
                raise
        if self._chain is None:
            return None
        try:
            known = await self._chain.get(f"/transactions/{chain_hash or tx_hash}", _ChainTransaction)
        except Refused as refused:
            if refused.status != 404:
                raise
            return None
        return Outcome(
            hash=tx_hash, state=_CHAIN_STATES.get(known.status, "pending"), reason=known.reason, chain_hash=chain_hash
        )

    async def _submit(self, action: str, transactions: list[Transaction]) -> Submitted:
        if not 0 < len(transactions) <= _MOST_AT_ONCE:
            raise ValueError(f"1 to {_MOST_AT_ONCE} transactions at once, not {len(transactions)}")
        handles = [Handle(transaction, self) for transaction in transactions]
        body = {"action": action} | without_none(traceparent=self._traceparent and self._traceparent())
        sent = Submitting(self._ask, self.outcome, body, handles, self._patience, self._chain is not None)
        try:
            await asyncio.gather(*(self.listen(handle.topic, handle) for handle in handles))
            submitted = await sent.told(self._timeout)
        except BaseException:
            for handle in handles:
                self.leave_later(handle.topic, handle)
            raise
        for error in submitted.refused:
            handle = handles[error.index or 0]
            self.leave_later(handle.topic, handle)
        return submitted

    async def _ask(self, body: dict[str, Any], seconds: float) -> Reply:
        """The reply to a message, over a connection that may take so long to come up. Raises as `Link.request`."""
        link = self._link()
        await link.wait_up(seconds)
        return await link.request(body)

    # ---- streams

    async def gas_stats(self, *, size: int = 64, policy: Policy = "drop") -> Subscription[GasStats]:
        """Gas prices of every shard, every 50 ms each."""
        return cast(Subscription[GasStats], await self.subscribe("gasStats", size=size, policy=policy))

    async def account(self, account: str, *, size: int = 1024, policy: Policy = "drop") -> Subscription[AccountDelta]:
        """Balances and nonce of an account, after each final block that changed it."""
        topic = f"address/{account}"
        return cast(Subscription[AccountDelta], await self.subscribe(topic, size=size, policy=policy))

    async def network_stats(self, *, size: int = 64, policy: Policy = "drop") -> Subscription[NetworkStats]:
        """The state of the network every 250 ms, over a connection of its own."""
        listener = Inbox("networkStats", size, policy)
        link = self._stats = self._stats or Link(
            self._http.session, self._ws_url + "/stats", self._timeout, subscribes=False
        )
        await link.add("networkStats", listener)
        return cast(
            Subscription[NetworkStats], Subscription(listener.mailbox, lambda: link.drop("networkStats", listener))
        )

    async def subscribe(self, topic: str, *, size: int = 1024, policy: Policy = "drop") -> Subscription[Push]:
        """Any topic by its name. Raises `Refused` and `Unreachable`."""
        listener = Inbox(topic, size, policy)
        link = self._link_for(topic)
        await link.add(topic, listener)
        return Subscription(listener.mailbox, lambda: link.drop(topic, listener))

    async def history(
        self, *, since_ms: int | None = None, until_ms: int | None = None, resolution: int | None = None
    ) -> History:
        """The network's statistics of the past; `resolution` in seconds: 1, 10, 60, 300 or 3600."""
        asked = {"from": since_ms, "to": until_ms, "resolution": resolution}
        return await self._http.get("/v1/network-stats/history", History, asked)

    async def ready(self) -> Readiness:
        """Whether submissions are taken, and what each key lacks."""
        return await self._http.get("/ready", Readiness, answers=503)

    async def health(self) -> dict[str, Any]:
        """How the service is, by the names of the wire."""
        return await self._http.get("/health", dict[str, Any], answers=503)

    async def listen(self, topic: str, listener: Handle) -> None:
        """Have a handle hear its topic. Raises `Refused` and `Unreachable`."""
        for link in self._links:
            if listener in link.topics.get(topic, ()):
                await link.subscribe(topic)
                return
        await self._link_for(topic).add(topic, listener)

    def leave_later(self, topic: str, listener: Handle) -> None:
        """Unsubscribe a handle from its topic, without anybody waiting for it."""
        for link in self._links:
            if listener in link.topics.get(topic, ()):
                self._later(link.drop(topic, listener))

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _link(self) -> Link:
        """A connection for submissions: one that stands, if there is one."""
        for link in self._links:
            if link.is_up:
                return link
        return self._links[0] if self._links else self._new_link()

    def _link_for(self, topic: str) -> Link:
        """The connection that has the topic, else one with room for it."""
        for link in self._links:
            if topic in link.topics:
                return link
        for link in self._links:
            if link.has_room():
                return link
        if len(self._links) < MAX_LINKS:
            return self._new_link()
        for link in self._links:  # those whose topics were asked for just now
            if len(link.topics) < MAX_TOPICS:
                return link
        detail = f"{MAX_LINKS} connections of {MAX_TOPICS} topics: leave some"
        raise Refused("too many subscriptions", code="too_many_subscriptions", detail=detail)

    def _new_link(self) -> Link:
        if self._is_closed:
            raise Unreachable("this client was closed")
        self._links.append(Link(self._http.session, self._ws_url, self._timeout, patience=self._patience))
        return self._links[-1]


class _Account(msgspec.Struct):
    nonce: int


class _ChainTransaction(msgspec.Struct):
    status: str
    reason: str | None = None


def _wanted(transaction: Transaction) -> dict[str, Any]:
    """What a wallet knows of a transaction, for `/v1/prepare`."""
    known = {
        "sender": transaction.sender,
        "receiver": transaction.receiver,
        "value": transaction.value,
        "data": transaction.data,
        "nonce": transaction.nonce,
        "gasLimit": transaction.gas_limit or None,
        "options": transaction.options,
        "guardian": transaction.guardian if transaction.options & GUARDED else "",
        "relayer": transaction.relayer,
        "senderUsername": transaction.sender_username,
        "receiverUsername": transaction.receiver_username,
    }
    return {
        name: value for name, value in known.items() if value not in (None, "", 0) or (name == "nonce" and value == 0)
    }
