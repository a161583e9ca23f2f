"""HTTP of the local chain: the pool document, the chain API's shapes, a faucet, and a control endpoint for tests.

Shapes follow the public chain API (`GET /transactions/{hash}`, `GET /accounts/{address}`); errors are the API's
`{"statusCode", "message", "error"}`.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec
from aiohttp import web

from millrace.chain import address, amount
from millrace.chain.shard import METACHAIN
from millrace.chain.transaction import Transaction, TransactionError, TransactionJson, from_json
from millrace.dex import document
from millrace.localnet.chain.admission import Refused
from millrace.localnet.chain.machine import Chain
from millrace.localnet.contracts.execution import QueryError, stored
from millrace.localnet.contracts.execution import query as view
from millrace.localnet.edges import simulation
from millrace.localnet.edges.control import Control, ControlError
from millrace.localnet.edges.views import transaction_view
from millrace.localnet.market.faucet import FaucetError
from millrace.runtime.http import json_response, make_app

_REASONS = {400: "Bad Request", 404: "Not Found", 503: "Service Unavailable"}


_FAUCET_SECONDS = 10.0
"""How long a faucet request waits until its receiver has what it asked for."""


class Grant(msgspec.Struct, forbid_unknown_fields=True):
    """Body of `POST /faucet`: `amount` in smallest units."""

    address: str
    token: str
    amount: str


class Query(msgspec.Struct, rename="camel"):
    """Body of `POST /vm-values/query`: a contract's view and its arguments in hex, as a gateway takes it."""

    sc_address: str
    func_name: str
    args: list[str] = []


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
        app.router.add_get("/network/config", self._network)
        app.router.add_get("/network/enable-epochs", self._enable_epochs)
        app.router.add_get("/network/enable-epochs-v2", self._enable_epochs_by_name)
        app.router.add_get("/network/enable-rounds", self._enable_rounds)
        app.router.add_get("/network/status/{shard}", _errors(self._status))
        app.router.add_get("/transaction/pool/{address}/virtual-nonce", _errors(self._virtual_nonce))
        app.router.add_post("/vm-values/query", _errors(self._view))
        app.router.add_post("/transaction/simulate", _errors(self._simulate))
        app.router.add_post("/transaction/cost", _errors(self._cost))
        app.router.add_get("/address/{address}/key/{key}", _errors(self._key))
        app.router.add_get("/transactions/{hash}", _errors(self._transaction))
        app.router.add_post("/transactions", _errors(self._submit))
        app.router.add_get("/accounts/{address}", _errors(self._account))
        app.router.add_get("/address/{address}", _errors(self._address_view))
        app.router.add_get("/accounts/{address}/tokens", _errors(self._tokens))
        app.router.add_post("/faucet", _errors(self._faucet))
        app.router.add_post("/control/{action}", _errors(self._act))
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

    async def _network(self, _: web.Request) -> web.Response:
        network, gas = self._chain.network, self._chain.network.gas
        config = {
            "erd_chain_id": network.chain_id,
            "erd_denomination": 18,
            "erd_gas_per_data_byte": gas.gas_per_data_byte,
            "erd_gas_price_modifier": str(gas.gas_price_modifier),
            "erd_min_gas_limit": gas.min_gas_limit,
            "erd_min_gas_price": gas.min_gas_price,
            "erd_max_gas_per_transaction": gas.max_gas_per_tx,
            "erd_extra_gas_limit_guarded_tx": gas.extra_guarded,
            "erd_extra_gas_limit_relayed_tx": gas.extra_relayed,
            "erd_min_transaction_version": 1,
            "erd_num_shards_without_meta": network.shards,
            "erd_round_duration": self._chain.settings.round_ms,
            "erd_rounds_per_epoch": self._chain.settings.rounds_per_epoch,
            "erd_start_time": self._chain.genesis_ms // 1000,
        }
        return _gateway({"config": config})

    async def _enable_epochs(self, _: web.Request) -> web.Response:
        """The one change-over that this chain knows."""
        return _gateway({"enableEpochs": {"erd_supernova_enable_epoch": self._chain.settings.supernova_epoch}})

    async def _enable_epochs_by_name(self, _: web.Request) -> web.Response:
        """The same under the name that a node's configuration has for it."""
        return _gateway({"enableEpochs": {"SupernovaEnableEpoch": self._chain.settings.supernova_epoch}})

    async def _enable_rounds(self, _: web.Request) -> web.Response:
        """Its round: the first whose blocks are executed later."""
        return _gateway({"enableRounds": {"SupernovaEnableRound": self._chain.settings.supernova_round}})

    async def _status(self, request: web.Request) -> web.Response:
        """The newest block of a shard, in a gateway's words."""
        text = request.match_info["shard"]
        shard = int(text) if text.isdecimal() and len(text) < 11 else -1
        if shard != METACHAIN and shard not in self._chain.shards:
            raise ApiError(404, f"there is no shard {text[:20]}")
        head = self._chain.head(shard)
        stamp = head.timestamp_ms if head is not None else self._chain.genesis_ms
        status = {
            "erd_nonce": head.nonce if head is not None else 0,
            "erd_current_round": self._chain.round,
            "erd_epoch_number": head.epoch if head is not None else 0,
            "erd_block_timestamp": stamp // 1000,
            "erd_block_timestamp_ms": stamp,
        }
        if head is not None and head.proposes:
            # Nodes of the present format write milliseconds into both.
            status |= {
                "erd_block_timestamp": stamp,
                "erd_proposed_nonce": head.nonce,
                "erd_last_executed_nonce": self._chain.executed_nonce(shard),
            }
        return _gateway({"status": status})

    async def _virtual_nonce(self, request: web.Request) -> web.Response:
        """The nonce that follows all proposals of a sender, in a node's words."""
        return _gateway({"virtualNonce": self._chain.virtual_nonce(_address(request))})

    async def _view(self, request: web.Request) -> web.Response:
        """A contract's view, in a gateway's words; what the contract refuses is an answer with its reason."""
        try:
            query = msgspec.json.decode(await request.read(), type=Query)
            contract = address.decode(query.sc_address)
            args = [bytes.fromhex(arg) for arg in query.args]
        except (msgspec.MsgspecError, RecursionError, ValueError) as error:
            raise ApiError(400, f"expected scAddress, funcName and args: {error}") from None
        answer: dict[str, Any] = {"returnCode": "ok", "returnMessage": "", "returnData": []}
        try:
            values = view(self._chain.shards[self._chain.home].state, contract, query.func_name, args)
            answer["returnData"] = [base64.b64encode(value).decode() for value in values]
        except QueryError as error:
            answer |= {"returnCode": "user error", "returnMessage": str(error)}
        return _gateway({"data": answer})

    async def _key(self, request: web.Request) -> web.Response:
        """What a contract stores under a key in hex, in a gateway's words."""
        try:
            key = bytes.fromhex(request.match_info["key"])
        except ValueError as error:
            raise ApiError(400, f"expected a key in hex: {error}") from None
        state = self._chain.shards[self._chain.home].state
        return _gateway({"value": stored(state, _address(request), key).hex()})

    async def _transaction(self, request: web.Request) -> web.Response:
        text = request.match_info["hash"]
        try:
            record = self._chain.index.find(bytes.fromhex(text)) if len(text) == 64 else None
        except ValueError:
            record = None
        if record is None:
            raise ApiError(404, "Transaction not found")
        return json_response(transaction_view(self._chain, record))

    async def _simulate(self, request: web.Request) -> web.Response:
        tx = await _posted(request)
        signed = request.query.get("checkSignature", "true") != "false"
        return _gateway(simulation.simulate(self._chain, tx, signed=signed))

    async def _cost(self, request: web.Request) -> web.Response:
        return _gateway(simulation.cost(self._chain, await _posted(request)))

    async def _submit(self, request: web.Request) -> web.Response:
        tx = await _posted(request)
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
        pubkey = _address(request)
        account = self._chain.account(pubkey)
        body: dict[str, Any] = {
            "address": address.encode(pubkey),
            "balance": str(account.balance),
            "nonce": account.nonce,
            "shard": self._chain.network.shard_of(pubkey),
            "isGuarded": bool(account.guardian),
        }
        if account.guardian:
            body["activeGuardianAddress"] = address.encode(account.guardian)
        return json_response(body)

    async def _address_view(self, request: web.Request) -> web.Response:
        """An account and the block that was executed last, in a gateway's words."""
        pubkey = _address(request)
        account, shard = self._chain.account(pubkey), self._chain.shards[self._chain.shard_of(pubkey)]
        executed = shard.last_executed
        info = {"nonce": executed.nonce, "hash": executed.hash.hex()} if executed is not None else {}
        body = {"address": address.encode(pubkey), "balance": str(account.balance), "nonce": account.nonce}
        return _gateway({"account": body, "blockInfo": info})

    async def _tokens(self, request: web.Request) -> web.Response:
        account = self._chain.account(_address(request))
        decimals = self._chain.market.decimals
        return json_response(
            [
                {"identifier": token, "decimals": decimals.get(token, 18), "balance": str(balance)}
                for token, balance in sorted(account.tokens.items())
            ]
        )

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


def _gateway(data: dict[str, Any]) -> web.Response:
    """An answer in a gateway's envelope."""
    return json_response({"data": data, "error": "", "code": "successful"})


def _set(future: asyncio.Future[bool], value: bool) -> None:
    if not future.done():
        future.set_result(value)


class ApiError(Exception):
    """An answer in the chain API's error shape."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


Handler = Callable[[web.Request], Awaitable[web.Response]]


def _errors(handler: Handler) -> Handler:
    async def guarded(request: web.Request) -> web.Response:
        try:
            return await handler(request)
        except ApiError as error:
            body = {"statusCode": error.status, "message": str(error), "error": _REASONS[error.status]}
            return json_response(body, error.status)

    return guarded


async def _posted(request: web.Request) -> Transaction:
    """The transaction in a request's body. Raises `ApiError`."""
    try:
        return from_json(msgspec.json.decode(await request.read(), type=TransactionJson))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, TransactionError) as error:
        raise ApiError(400, f"transaction generation failed: {error}") from None


def _address(request: web.Request) -> bytes:
    try:
        return address.decode(request.match_info["address"])
    except address.AddressError as error:
        raise ApiError(400, f"Validation failed for argument 'address': {error}") from None
