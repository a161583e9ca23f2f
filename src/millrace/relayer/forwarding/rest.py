"""The REST interface of an edge: what needs keys or a journal is asked of the relayers that have them."""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

import aiohttp
import msgspec
from aiohttp import web
from yarl import URL

from millrace.chain import address
from millrace.chain.network import NetworkProfile
from millrace.relayer.forwarding import parts
from millrace.relayer.forwarding.parts import Piece, Routed
from millrace.relayer.forwarding.signers import AWAY, UNKNOWN, Signers
from millrace.relayer.forwarding.upstream import Upstream
from millrace.relayer.gateway.rest import RestApi
from millrace.relayer.gateway.wallets import HASH, LONGEST_PATIENCE, patience_of
from millrace.relayer.protocol import messages, reasons, wallets
from millrace.relayer.protocol.reasons import Reason, Refused
from millrace.relayer.protocol.wallets import RelayersReply
from millrace.runtime import http

log = logging.getLogger(__name__)

MAX_UNDER_WAY = 1_000
"""Requests forwarded and not answered, as many as a relayer lets wait for ends; further ones are `relayer busy`."""
CONNECT_SECONDS = 2.0
ANSWER_SECONDS = LONGEST_PATIENCE + 15.0
"""The longest wait that can be asked for, and what a relayer may take beside it."""
LOOK_SECONDS, LOOK_ANSWER_SECONDS = 1.0, 5.0
"""Between two looks whether the client still waits; and for answers that nobody waits for at the relayer."""
UNREAD = reasons.BUSY.but(
    "a relayer that signs answered what is not understood, so whether all was accepted is not known: send the same"
    " bytes again, or ask GET /v1/transactions/{hash}",
    1_000,
)
_PASSED_ON = ("Content-Type", "Retry-After")


class _Lost(Exception):
    """A relayer did not answer; `sent`: it may have heard the question."""

    def __init__(self, *, sent: bool) -> None:
        super().__init__("no answer")
        self.sent = sent


class _Answer(NamedTuple):
    status: int
    body: bytes
    headers: dict[str, str]


class ForwardedRest:
    """Handlers beside those of `RestApi`, whose limits they share."""

    def __init__(self, rest: RestApi, signers: Signers, network: NetworkProfile) -> None:
        self._rest, self._signers, self._network = rest, signers, network
        self._session: aiohttp.ClientSession | None = None
        self.under_way = 0
        """Requests forwarded and not answered."""

    def routes(self) -> list[web.RouteDef]:
        """What to add to the application in the place of what needs keys."""
        return [
            web.post("/v1/sign", self._submit),
            web.post("/v1/broadcast", self._submit),
            web.post("/v1/relay", self._submit),
            web.post("/v1/prepare", self._prepare),
            web.get("/v1/relayers", self._relayers),
            web.get("/v1/transactions/{hash}", self._transaction),
        ]

    async def start(self) -> None:
        """Be ready to ask."""
        connector = aiohttp.TCPConnector(limit=MAX_UNDER_WAY, limit_per_host=0)
        timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS, sock_connect=CONNECT_SECONDS)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False)

    async def stop(self) -> None:
        """Ask no more."""
        if self._session is not None:
            await self._session.close()

    # ---- submissions

    async def _submit(self, request: web.Request) -> web.Response:
        if request.path == "/v1/relay":
            patience_of(request)  # a relayer says that first
        body, marked, client = await self._rest.read_body(request)
        transactions = await self._rest.read_transactions(body, marked)
        self._rest.charge_submissions(client, len(transactions))
        items = [parts.routed(raw) for raw in transactions]
        targets = parts.divided(items, self._signers.choose)
        if len(targets) == 1:
            (upstream,) = targets
            return _response(await self._post(request, upstream, body))
        bodies = {
            upstream: messages.encode(messages.RestSubmission([transactions[position] for position in positions]))
            for upstream, positions in targets.items()
        }
        answers = await asyncio.gather(*(self._post(request, each, part) for each, part in bodies.items()))
        worst = max(answers, key=lambda answer: answer.status)
        if all(answer.status != 200 for answer in answers):
            return _response(worst)
        action = {"/v1/relay": "relay", "/v1/broadcast": "broadcast"}.get(request.path)
        pieces = [
            Piece(positions, answer.body if answer.status == 200 else _as_refusal(answer))
            for positions, answer in zip(targets.values(), answers, strict=True)
        ]
        try:
            return web.Response(body=parts.joined(pieces, action), content_type="application/json")
        except parts.UNREADABLE as error:
            log.error("a relayer's answer is not understood", extra={"error": str(error)[:200]})
            return _response(_no_answer(self._rest.count(UNREAD)))

    async def _prepare(self, request: web.Request) -> web.Response:
        body, marked, client = await self._rest.read_body(request)
        asked = wallets.decode_prepare(body, marked)
        self._rest.charge_submissions(client, 1)
        upstream = self._signers.choose(Routed(asked.sender, asked.relayer or self._payer_of(asked.sender)))
        return _response(await self._post(request, upstream, body))

    def _payer_of(self, sender: str) -> str:
        """Whom a sender's shard would name; empty where nobody is known, or the address is none."""
        try:
            shard = self._network.shard_of(address.decode(sender))
        except address.AddressError:
            return ""
        payers = (each.said.relayers.get(shard) for each in self._signers.all if each.said is not None)
        return next((payer for payer in payers if payer), "")

    async def _post(self, request: web.Request, upstream: Upstream, body: bytes) -> _Answer:
        """A relayer's answer, or in the error body why there is none: other parts have answers of their own."""
        try:
            answer = await self._ask(request, upstream, body)
            self._signers.on_taken(parts.taken(answer.body))
            return answer
        except _Lost as lost:
            return _no_answer(self._rest.count(UNKNOWN if lost.sent else AWAY))
        except Refused as refusal:
            return _no_answer(self._rest.count(refusal.reason))

    # ---- questions

    async def _transaction(self, request: web.Request) -> web.Response:
        """Whoever took it knows; that nobody does can be said when all have been asked.

        Who stands by took it earlier if at all: what others say of it is newer.
        """
        text = request.match_info["hash"]
        tx_hash = bytes.fromhex(text) if HASH.fullmatch(text) else None
        answers, lost = await self._ask_all(request, tx_hash)
        for answer in answers:
            if answer.status not in (404, 503):
                return _response(answer)
        if lost or not answers:
            text = "a relayer that may know it cannot be reached: ask again"
            return http.error_response(text, 503, {"Retry-After": "1"})
        return _response(max(answers, key=lambda answer: answer.status))

    async def _relayers(self, request: web.Request) -> web.Response:
        """Those of all relayers; of who is away what it said of itself, as not ready."""
        answers, _ = await self._ask_all(request)
        replies = [reply for answer in answers if answer.status == 200 and (reply := _relayers_of(answer)) is not None]
        if not replies:
            refusals = [answer for answer in answers if answer.status != 200]
            return _response(refusals[0] if refusals else _no_answer(self._rest.count(UNREAD if answers else AWAY)))
        found = {item.address: item for reply in replies for item in reply.relayers if item.state != "ready"}
        found |= {item.address: item for reply in replies for item in reply.relayers if item.state == "ready"}
        for each in self._signers.all:
            for shard, name in () if each.said is None else each.said.relayers.items():
                item = wallets.RelayerItem(shard, name, "not ready", replies[0].caps.gas_price)
                found.setdefault(name, item)
        ordered = sorted(found.values(), key=lambda item: (item.shard, item.state != "ready", item.address))
        return http.json_response(msgspec.structs.replace(replies[0], relayers=ordered))

    async def _ask_all(self, request: web.Request, tx_hash: bytes | None = None) -> tuple[list[_Answer], bool]:
        """The answers of all relayers, and whether any of them gave none; of who stands by last, if of a hash."""
        ordered = sorted(self._signers.all, key=lambda each: each.stands_by)
        asked = (self._ask(request, each, None, tx_hash) for each in ordered)
        found = await asyncio.gather(*asked, return_exceptions=True)
        answers = []
        for item in found:
            if isinstance(item, _Answer):
                answers.append(item)
            elif not isinstance(item, _Lost):
                raise item
        return answers, len(answers) < len(found)

    # ---- the way there

    async def _ask(
        self, request: web.Request, upstream: Upstream, body: bytes | None, tx_hash: bytes | None = None
    ) -> _Answer:
        """Ask a relayer in the client's name, for as long as the client waits. Raises `_Lost` and `Refused`."""
        base = upstream.http_base
        if upstream.stands_by and tx_hash is not None:
            asking = _looked(upstream, tx_hash)
        elif base is not None and upstream.is_up:
            asking = self._asked(request, base + request.rel_url.raw_path_qs, body)
        else:
            raise _Lost(sent=False)
        if self.under_way >= MAX_UNDER_WAY:
            asking.close()
            raise Refused(reasons.BUSY.but("too many requests are forwarded", 500))
        self.under_way += 1
        task = asyncio.ensure_future(asking)
        try:
            while not task.done() and request.transport is not None:
                await asyncio.wait([task], timeout=LOOK_SECONDS)
            if not task.done():
                raise _Lost(sent=True)  # the client has gone
            return task.result()
        finally:
            task.cancel()
            self.under_way -= 1

    async def _asked(self, request: web.Request, url: str, body: bytes | None) -> _Answer:
        assert self._session is not None, "not started"
        headers = {"X-Forwarded-For": self._rest.client(request).partition("/")[0]}
        for name in ("Authorization", "Content-Type", "traceparent"):
            if name in request.headers:
                headers[name] = request.headers[name]
        timeout = None if body is not None else aiohttp.ClientTimeout(total=LOOK_ANSWER_SECONDS)
        try:
            async with self._session.request(
                request.method,
                URL(url, encoded=True),
                data=body,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
            ) as answer:
                passed_on = {name: answer.headers[name] for name in _PASSED_ON if name in answer.headers}
                return _Answer(answer.status, await answer.read(), passed_on)
        except aiohttp.ClientConnectorError:
            raise _Lost(sent=False) from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            log.warning("a relayer did not answer", extra={"url": url[:200], "error": str(error)[:200]})
            raise _Lost(sent=True) from None


async def _looked(upstream: Upstream, tx_hash: bytes) -> _Answer:
    """What a relayer that stands by says. Raises `_Lost`."""
    found = await upstream.look(tx_hash)
    if found is None:
        raise _Lost(sent=True)
    status, body = found
    return _Answer(status, body, {"Content-Type": "application/json"} | ({"Retry-After": "1"} if status == 503 else {}))


def _response(answer: _Answer) -> web.Response:
    return web.Response(status=answer.status, body=answer.body, headers=answer.headers)


def _relayers_of(answer: _Answer) -> RelayersReply | None:
    try:
        return msgspec.json.decode(answer.body, type=RelayersReply)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        log.error("a relayer's answer is not understood", extra={"error": str(error)[:200]})
        return None


def _no_answer(reason: Reason) -> _Answer:
    text = reason.reason + (f": {reason.detail}" if reason.detail else "")
    return _Answer(503, messages.encode({"error": text}), {"Content-Type": "application/json", "Retry-After": "1"})


def _as_refusal(answer: _Answer) -> bytes:
    """A part that is refused over HTTP, in the words of a whole that is refused."""
    try:
        text = msgspec.json.decode(answer.body, type=dict[str, str]).get("error", "")
    except (msgspec.DecodeError, UnicodeDecodeError):
        text = ""
    reason, _, detail = text.partition(": ")
    known = Reason(reason or reasons.BUSY.reason, (reason or reasons.BUSY.reason).replace(" ", "_"), detail or None)
    seconds = answer.headers.get("Retry-After", "")
    return messages.fail_reply(None, known.but(known.detail, int(seconds) * 1000 if seconds.isdigit() else None))
