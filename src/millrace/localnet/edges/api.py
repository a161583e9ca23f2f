"""HTTP of the local chain: the pool document, the chain API's shapes, a faucet, and a control endpoint for tests.

Shapes follow the public chain API (`GET /transactions/{hash}`, `GET /accounts/{address}`); errors are the API's
`{"statusCode", "message", "error"}`. What a gateway answers is in `gateway`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any

import msgspec
from aiohttp import web

from millrace.chain import address, amount
from millrace.chain.shard import METACHAIN
from millrace.dex import document
from millrace.localnet.chain.admission import Refused
from millrace.localnet.chain.machine import Chain
from millrace.localnet.edges.answers import ApiError, address_in, errors, posted, record_in
from millrace.localnet.edges.control import Control, ControlError
from millrace.localnet.edges.gateway import Gateway, ask
from millrace.localnet.edges.views import block_view, guardians_view, transaction_view
from millrace.localnet.market.faucet import FaucetError
from millrace.runtime.http import json_response, make_app

MAX_PAGE = 1000
"""Entries of a list in one answer."""
MAX_TRANSACTIONS = 100
"""The same of transactions, each of which is some hundred times an entry's work."""

_FAUCET_SECONDS = 10.0
"""How long a faucet request waits until its receiver has what it asked for."""


class Grant(msgspec.Struct, forbid_unknown_fields=True):
    """Body of `POST /faucet`: `amount` in smallest units."""

    address: str
    token: str
    amount: str


class Api:
    """The handlers; all of them read or change the chain between two rounds, on the event loop."""

    def __init__(self, chain: Chain, control: Control, gossip_addresses: Callable[[], list[str]]) -> None:
        self._chain = chain
        self._control = control
        self._gossip_addresses = gossip_addresses
        self._document: tuple[tuple[int, int] | None, bytes] = (None, b"")

    def app(self) -> web.Application:
        """The application with all routes."""
        app = make_app()
        app.router.add_get("/health", self._health)
        app.router.add_get("/pools", self._pools)
        app.router.add_get("/gossip", self._gossip)
        app.router.add_get("/transactions/{hash}", errors(self._transaction))
        app.router.add_post("/transactions", errors(self._submit))
        app.router.add_get("/blocks/latest", errors(self._latest_block))
        app.router.add_get("/blocks/{hash}", errors(self._block))
        app.router.add_get("/accounts/{address}", errors(self._account))
        app.router.add_get("/accounts/{address}/tokens", errors(self._tokens))
        app.router.add_get("/accounts/{address}/tokens/{token}", errors(self._token_of_account))
        app.router.add_get("/accounts/{address}/nfts", errors(self._nfts))
        app.router.add_get("/accounts/{address}/transactions", errors(self._transactions))
        app.router.add_get("/tokens/{token}", errors(self._token))
        app.router.add_post("/query", errors(self._query))
        app.router.add_post("/faucet", errors(self._faucet))
        app.router.add_post("/control/{action}", errors(self._act))
        Gateway(self._chain).add_to(app.router)
        return app

    async def _health(self, _: web.Request) -> web.Response:
        chain = self._chain
        blocks = {str(number): shard.next_nonce - 1 for number, shard in chain.shards.items()}
        return json_response(
            {
                "status": "ok",
                "chainId": chain.network.chain_id,
                "profile": chain.network.name,
                "round": chain.round,
                "blocks": blocks | {"meta": chain.block_nonce(METACHAIN)},
                "executed": {str(number): chain.executed_nonce(number) for number in chain.shards},
                "mempool": {str(number): len(shard.mempool) for number, shard in chain.shards.items()},
                "pools": len(chain.market.pools),
                "observers": self._control.observers_state(),
            }
        )

    async def _pools(self, _: web.Request) -> web.Response:
        """The pool document, encoded once per executed block."""
        shard = self._chain.shards[self._chain.home]
        executed = shard.last_executed
        key = (executed.nonce if executed is not None else 0, shard.forks)
        if self._document[0] != key:
            self._document = (key, document.encode(self._chain.pool_document()))
        return web.Response(body=self._document[1], content_type="application/json")

    async def _gossip(self, _: web.Request) -> web.Response:
        return json_response({"peers": self._gossip_addresses()})

    async def _transaction(self, request: web.Request) -> web.Response:
        return json_response(transaction_view(self._chain, record_in(request, self._chain)))

    async def _transactions(self, request: web.Request) -> web.Response:
        """What an account sent or was sent, newest first."""
        pubkey, page = address_in(request), _page(request, MAX_TRANSACTIONS)
        records = self._chain.index.newest(lambda tx: pubkey in (tx.sender, tx.receiver))
        return json_response([transaction_view(self._chain, record) for record in islice(records, *page)])

    async def _latest_block(self, _: web.Request) -> web.Response:
        """The metachain's newest block, which is final."""
        head = self._chain.head(METACHAIN)
        if head is None:
            raise ApiError(404, "block not found")
        return json_response(block_view(head))

    async def _block(self, request: web.Request) -> web.Response:
        for shard in (METACHAIN, *self._chain.shards):
            for block in self._chain.blocks_of(shard):
                if block.hash.hex() == request.match_info["hash"]:
                    return json_response(block_view(block))
        raise ApiError(404, "block not found")

    async def _submit(self, request: web.Request) -> web.Response:
        tx = await posted(request)
        try:
            tx_hash = self._chain.submit(tx)
        except Refused as error:
            raise ApiError(400, f"transaction generation failed: {error}") from None
        body = {
            "txHash": tx_hash.hex(),
            "sender": address.encode(tx.sender),
            "receiver": address.encode(tx.receiver),
            "senderShard": self._chain.shard_of(tx.sender),
            "receiverShard": self._chain.shard_of(tx.receiver),
            "status": "Pending",
        }
        return json_response(body, 201)

    async def _account(self, request: web.Request) -> web.Response:
        pubkey = address_in(request)
        account = self._chain.account(pubkey)
        body: dict[str, Any] = {
            "address": address.encode(pubkey),
            "balance": str(account.balance),
            "nonce": account.nonce,
            "shard": self._chain.network.shard_of(pubkey),
        }
        if request.query.get("withGuardianInfo") == "true":  # not told unasked, as by the public API
            body |= guardians_view(account.guarding, self._chain.ledger_of(pubkey).epoch)
        return json_response(body)

    async def _tokens(self, request: web.Request) -> web.Response:
        held = self._chain.account(address_in(request)).tokens
        return json_response(
            [self._holding(token, held[token]) for token in islice(sorted(held), *_page(request, MAX_PAGE))]
        )

    async def _token_of_account(self, request: web.Request) -> web.Response:
        held, token = self._chain.account(address_in(request)).tokens, request.match_info["token"]
        if token not in held:
            raise ApiError(404, "Token for given account not found")
        return json_response(self._holding(token, held[token]))

    async def _nfts(self, request: web.Request) -> web.Response:
        """There are none on this chain."""
        address_in(request)
        return json_response([])

    def _holding(self, token: str, balance: int) -> dict[str, Any]:
        return {
            "identifier": token,
            "decimals": self._chain.market.decimals.get(token, 18),
            "balance": str(balance),
        }

    async def _token(self, request: web.Request) -> web.Response:
        info = next((info for info in self._chain.market.infos if info.identifier == request.match_info["token"]), None)
        if info is None:
            raise ApiError(404, "Token not found")
        body = {"type": "FungibleESDT", "identifier": info.identifier, "decimals": info.decimals}
        return json_response(body | {"name": info.name, "ticker": info.ticker})

    async def _query(self, request: web.Request) -> web.Response:
        return json_response(await ask(self._chain, request))

    async def _faucet(self, request: web.Request) -> web.Response:
        try:
            grant = msgspec.json.decode(await request.read(), type=Grant)
            receiver = address.decode(grant.address)
            delivered: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            grant_hash = self._chain.give(receiver, grant.token, amount.parse(grant.amount), partial(_set, delivered))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ApiError(400, f"expected address, token and amount: {error}") from None
        except (address.AddressError, amount.AmountError, FaucetError) as error:
            raise ApiError(400, str(error)) from None
        try:
            async with asyncio.timeout(_FAUCET_SECONDS):
                if not await delivered:
                    raise ApiError(503, "its shard opens no more accounts: what was granted is burnt")
        except TimeoutError:
            raise ApiError(
                503, "it was granted, but no block has delivered it yet: do not ask again, see if a shard is stopped"
            ) from None
        finally:
            self._chain.unwatch(grant_hash)
        body = {"address": grant.address, "token": grant.token, "amount": grant.amount, "hash": grant_hash.hex()}
        return json_response(body)

    async def _act(self, request: web.Request) -> web.Response:
        raw = await request.read()
        try:
            body = msgspec.json.decode(raw, type=dict[str, Any]) if raw else {}
            return json_response(self._control.act(request.match_info["action"], body))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ApiError(400, f"expected a JSON object: {error}") from None
        except ControlError as error:
            raise ApiError(404 if error.unknown else 400, str(error)) from None


def _page(request: web.Request, most: int) -> tuple[int, int]:
    """The places of a list that a request asks for with `from` and `size`. Raises `ApiError`."""
    asked = [request.query.get("from", "0"), request.query.get("size", str(most))]
    if not all(text.isascii() and text.isdecimal() and len(text) < 10 for text in asked):
        raise ApiError(400, "from and size: numbers")
    first, size = (int(text) for text in asked)
    return first, first + min(size, most)


def _set(future: asyncio.Future[bool], value: bool) -> None:
    if not future.done():
        future.set_result(value)
