"""The gateway's routes of the local chain: its words, its envelope, its paths in the singular.

Shapes follow mx-chain-proxy-go, as far as the official SDKs' proxy providers and our own services read them.
"""

from __future__ import annotations

import base64
from typing import Any

import msgspec
from aiohttp import web

from millrace.chain import address
from millrace.chain.shard import METACHAIN
from millrace.chain.transaction import TransactionJson
from millrace.localnet.chain.admission import Refused
from millrace.localnet.chain.machine import Chain
from millrace.localnet.contracts.execution import QueryError, stored
from millrace.localnet.contracts.execution import query as view
from millrace.localnet.edges import simulation
from millrace.localnet.edges.answers import (
    ApiError,
    address_in,
    decoded,
    errors,
    gateway,
    posted,
    record_in,
    transaction_of,
)
from millrace.localnet.edges.views import block_view, gateway_status, gateway_transaction_view

MAX_SENT = 100
"""Transactions in one `send-multiple`: each costs up to three checks of signatures while the chain stands still."""


class Query(msgspec.Struct, rename="camel"):
    """A contract's view and its arguments in hex."""

    sc_address: str
    func_name: str
    args: list[str] = []


async def ask(chain: Chain, request: web.Request) -> dict[str, Any]:
    """What a contract's view answers; what the contract refuses is an answer with its reason. Raises `ApiError`."""
    asked = await decoded(request, Query, "expected scAddress, funcName and args")
    try:
        contract = address.decode(asked.sc_address)
        args = [bytes.fromhex(arg) for arg in asked.args]
    except ValueError as error:
        raise ApiError(400, f"expected scAddress, funcName and args: {error}") from None
    answer: dict[str, Any] = {"returnCode": "ok", "returnMessage": "", "returnData": []}
    try:
        values = view(chain.shards[chain.home].state, contract, asked.func_name, args)
        answer["returnData"] = [base64.b64encode(value).decode() for value in values]
    except QueryError as error:
        answer |= {"returnCode": "user error", "returnMessage": str(error)}
    return answer


class Gateway:
    """The handlers; all of them read or change the chain between two rounds, on the event loop."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Add all routes."""
        router.add_get("/network/config", self._network)
        router.add_get("/network/enable-epochs", self._enable_epochs)
        router.add_get("/network/enable-epochs-v2", self._enable_epochs_by_name)
        router.add_get("/network/enable-rounds", self._enable_rounds)
        router.add_get("/network/status/{shard}", errors(self._status))
        router.add_get("/block/{shard}/by-nonce/{nonce}", errors(self._block))
        router.add_get("/block/{shard}/by-hash/{hash}", errors(self._block))
        router.add_get("/transaction/pool/{address}/virtual-nonce", errors(self._virtual_nonce))
        router.add_post("/transaction/send", errors(self._send))
        router.add_post("/transaction/send-multiple", errors(self._send_multiple))
        router.add_post("/transaction/simulate", errors(self._simulate))
        router.add_post("/transaction/cost", errors(self._cost))
        router.add_get("/transaction/{hash}", errors(self._transaction))
        router.add_get("/transaction/{hash}/process-status", errors(self._process_status))
        router.add_post("/vm-values/query", errors(self._view))
        router.add_get("/address/{address}", errors(self._account))
        router.add_get("/address/{address}/guardian-data", errors(self._guardian))
        router.add_get("/address/{address}/esdt", errors(self._tokens))
        router.add_get("/address/{address}/esdt/{token}", errors(self._token))
        router.add_get("/address/{address}/key/{key}", errors(self._key))

    # Network

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
        return gateway({"config": config})

    async def _enable_epochs(self, _: web.Request) -> web.Response:
        """The one change-over that this chain knows."""
        return gateway({"enableEpochs": {"erd_supernova_enable_epoch": self._chain.settings.supernova_epoch}})

    async def _enable_epochs_by_name(self, _: web.Request) -> web.Response:
        """The same under the name that a node's configuration has for it."""
        return gateway({"enableEpochs": {"SupernovaEnableEpoch": self._chain.settings.supernova_epoch}})

    async def _enable_rounds(self, _: web.Request) -> web.Response:
        """Its round: the first whose blocks are executed later."""
        return gateway({"enableRounds": {"SupernovaEnableRound": self._chain.settings.supernova_round}})

    async def _status(self, request: web.Request) -> web.Response:
        """The newest block of a shard."""
        shard = self._shard_in(request)
        head, final = self._chain.head(shard), self._chain.newest_final(shard)
        stamp = head.timestamp_ms if head is not None else self._chain.genesis_ms
        status = {
            "erd_nonce": head.nonce if head is not None else 0,
            "erd_highest_final_nonce": final.nonce if final is not None else 0,
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
        return gateway({"status": status})

    def _shard_in(self, request: web.Request) -> int:
        text = request.match_info["shard"]
        shard = int(text) if text.isdecimal() and len(text) < 11 else -1
        if shard != METACHAIN and shard not in self._chain.shards:
            raise ApiError(404, f"there is no shard {text[:20]}")
        return shard

    async def _block(self, request: web.Request) -> web.Response:
        """A block by its nonce or its hash."""
        wanted = (request.match_info.get("nonce"), request.match_info.get("hash"))
        for block in reversed(self._chain.blocks_of(self._shard_in(request))):
            if str(block.nonce) == wanted[0] or block.hash.hex() == wanted[1]:
                return gateway({"block": block_view(block)})
        raise ApiError(404, "block not found")

    # Transactions

    async def _virtual_nonce(self, request: web.Request) -> web.Response:
        """The nonce that follows all proposals of a sender."""
        return gateway({"virtualNonce": self._chain.virtual_nonce(address_in(request))})

    async def _send(self, request: web.Request) -> web.Response:
        tx = await posted(request)
        try:
            return gateway({"txHash": self._chain.submit(tx).hex()})
        except Refused as error:
            raise ApiError(400, f"transaction generation failed: {error}") from None

    async def _send_multiple(self, request: web.Request) -> web.Response:
        """The hashes by place; one that is refused has none, and nobody says why, as at a gateway."""
        asked = await decoded(request, list[TransactionJson], "expected a list of transactions")
        if len(asked) > MAX_SENT:
            raise ApiError(400, f"at most {MAX_SENT} transactions at once")
        hashes: dict[str, str] = {}
        for place, raw in enumerate(asked):
            try:
                hashes[str(place)] = self._chain.submit(transaction_of(raw)).hex()
            except (ApiError, Refused):
                continue
        return gateway({"numOfSentTxs": len(hashes), "txsHashes": hashes})

    async def _simulate(self, request: web.Request) -> web.Response:
        tx = await posted(request)
        signed = request.query.get("checkSignature", "true") != "false"
        return gateway(simulation.simulate(self._chain, tx, signed=signed))

    async def _cost(self, request: web.Request) -> web.Response:
        return gateway(simulation.cost(self._chain, await posted(request)))

    async def _transaction(self, request: web.Request) -> web.Response:
        results = request.query.get("withResults") == "true"
        record = record_in(request, self._chain)
        return gateway({"transaction": gateway_transaction_view(self._chain, record, results=results)})

    async def _process_status(self, request: web.Request) -> web.Response:
        record = record_in(request, self._chain)
        return gateway({"status": gateway_status(record), "reason": record.reason if record.status == "fail" else ""})

    async def _view(self, request: web.Request) -> web.Response:
        return gateway({"data": await ask(self._chain, request)})

    # Accounts

    def _as_of(self, pubkey: bytes) -> dict[str, Any]:
        """The block that what is told of an account is as of."""
        executed = self._chain.shards[self._chain.shard_of(pubkey)].last_executed
        return {"nonce": executed.nonce, "hash": executed.hash.hex()} if executed is not None else {}

    async def _account(self, request: web.Request) -> web.Response:
        """An account and the block that was executed last."""
        pubkey = address_in(request)
        account = self._chain.account(pubkey)
        body = {"address": address.encode(pubkey), "balance": str(account.balance), "nonce": account.nonce}
        return gateway({"account": body, "blockInfo": self._as_of(pubkey)})

    async def _guardian(self, request: web.Request) -> web.Response:
        pubkey = address_in(request)
        guarding, epoch = self._chain.account(pubkey).guarding, self._chain.ledger_of(pubkey).epoch
        data: dict[str, Any] = {"guarded": guarding.on}
        for name, guardian in (
            ("activeGuardian", guarding.active(epoch)),
            ("pendingGuardian", guarding.pending(epoch)),
        ):
            if guardian is not None:
                data[name] = {
                    "activationEpoch": guardian.epoch,
                    "address": address.encode(guardian.address),
                    "serviceUID": guardian.service.decode("utf-8", "replace"),
                }
        return gateway({"guardianData": data, "blockInfo": self._as_of(pubkey)})

    async def _tokens(self, request: web.Request) -> web.Response:
        pubkey = address_in(request)
        tokens = {token: _holding(token, held) for token, held in sorted(self._chain.account(pubkey).tokens.items())}
        return gateway({"esdts": tokens, "blockInfo": self._as_of(pubkey)})

    async def _token(self, request: web.Request) -> web.Response:
        """What an account holds of a token: 0 of one that it never had."""
        pubkey, token = address_in(request), request.match_info["token"]
        held = self._chain.account(pubkey).tokens.get(token, 0)
        return gateway({"tokenData": _holding(token, held), "blockInfo": self._as_of(pubkey)})

    async def _key(self, request: web.Request) -> web.Response:
        """What a contract stores under a key in hex."""
        try:
            key = bytes.fromhex(request.match_info["key"])
        except ValueError as error:
            raise ApiError(400, f"expected a key in hex: {error}") from None
        state = self._chain.shards[self._chain.home].state
        return gateway({"value": stored(state, address_in(request), key).hex()})


def _holding(token: str, balance: int) -> dict[str, str]:
    return {"tokenIdentifier": token, "balance": str(balance), "properties": ""}
