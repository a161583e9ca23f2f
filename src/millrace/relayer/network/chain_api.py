"""The public chain API: first source of unknown accounts, and another way in for transactions."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Annotated, Literal, NamedTuple

import aiohttp
import msgspec

from millrace.chain import address
from millrace.chain.transaction import Transaction, to_json
from millrace.relayer.network import node_errors, outgoing
from millrace.runtime.logs import Seldom

log = logging.getLogger(__name__)

MAX_ANSWER = 1024 * 1024
MAX_TEXT = 4096
MAX_CONCURRENT = 32
TELL_SECONDS = 1.0
NOT_TOLD = 400, 500
"""Status of an answer that concerns what was asked for; of others (429, 502 to 504, 401) everybody gets the same."""
GATEWAY_SECONDS = 600.0
"""So long an API that does not answer a gateway's question is not asked it again."""
NO_ROUTE = b"Cannot GET", b"404 page not found"
"""How a 404 of the chain API, and one of a gateway, speak of a wrong path, and not of an account."""

FAILURES = ("signalError", "internalVMErrors")
"""Events of a call that failed, also where the transaction that it belongs to did not."""

Taken = Literal["taken", "never", "later"]


class ChainAccount(NamedTuple):
    """What the chain API says of an account."""

    nonce: int
    balance: int
    guardian: bytes | None = None
    """The active guardian's public key, empty without one; `None` when the API does not say."""
    pending: bool = False
    """Whether another guardian will be the active one with an epoch to come."""


class _AccountJson(msgspec.Struct, frozen=True, rename="camel"):
    nonce: Annotated[int, msgspec.Meta(ge=0)]
    balance: str
    is_guarded: bool | None = None
    active_guardian_address: str | None = None
    pending_guardian_address: str | None = None

    def guardian(self) -> bytes | None:
        if not self.is_guarded:
            return None if self.is_guarded is None else b""
        if not self.active_guardian_address:  # it asks a node, which did not answer
            raise NotToldError("the chain API does not say who guards the account")
        return address.decode(self.active_guardian_address)


class ChainBalance(NamedTuple):
    """What an account holds, and at which block, where the chain API says so (`blockInfo`)."""

    nonce: int
    balance: int
    height: int | None = None
    block_hash: bytes = b""


class _BlockInfoJson(msgspec.Struct, frozen=True):
    nonce: Annotated[int, msgspec.Meta(ge=0)] = 0
    hash: str = ""


class _AddressJson(msgspec.Struct, frozen=True, rename="camel"):
    account: _AccountJson
    block_info: _BlockInfoJson = _BlockInfoJson()


class _GatewayJson(msgspec.Struct, frozen=True):
    """A gateway's answer of an account."""

    data: _AddressJson


class _EventJson(msgspec.Struct, frozen=True):
    identifier: str = ""


class _LogsJson(msgspec.Struct, frozen=True):
    events: list[_EventJson] | None = None


class _SimulatedJson(msgspec.Struct, frozen=True, rename="camel"):
    """What came of a transaction in one shard."""

    status: str
    fail_reason: str = ""
    logs: _LogsJson | None = None

    @property
    def succeeded(self) -> bool:
        events = (self.logs.events if self.logs is not None else None) or ()
        return self.status == "success" and not self.fail_reason and not any(e.identifier in FAILURES for e in events)


class _BothShardsJson(msgspec.Struct, frozen=True, rename="camel"):
    sender_shard: _SimulatedJson
    receiver_shard: _SimulatedJson


class _SimulationJson(msgspec.Struct, frozen=True):
    result: msgspec.Raw


class _SimulationAnswer(msgspec.Struct, frozen=True):
    """A gateway's answer of a simulation: of one shard, or of the sender's and the receiver's."""

    data: _SimulationJson


class _ConfigJson(msgspec.Struct, frozen=True):
    erd_round_duration: int


class _InConfigJson(msgspec.Struct, frozen=True):
    config: _ConfigJson


class _NetworkJson(msgspec.Struct, frozen=True):
    """A gateway's answer of the network's configuration."""

    data: _InConfigJson


class _PeersJson(msgspec.Struct, frozen=True):
    peers: list[str]


class ChainApiError(Exception):
    """The chain API cannot be reached or answers nonsense."""


class NotToldError(ChainApiError):
    """The chain API answers, and cannot say what it was asked: of an account whose shard's nodes are away, for one."""


class ChainApi:
    """Client of `{base_url}/accounts/{address}` and `/transactions`. `close` it when done.

    It connects to the hosts of `base_url` and `other_urls` alone, and follows no redirects: an answer that sends it
    elsewhere is a refusal. Raises `ForbiddenError` when a URL names an address nobody should connect to.
    """

    def __init__(self, base_url: str, timeout: float, *other_urls: str, private: bool = True) -> None:
        self._base_url = base_url.rstrip("/")
        self._private = private
        self._hosts = outgoing.hosts_of(base_url, *other_urls)
        for url in (base_url, *other_urls):
            if url:
                outgoing.check_url(url, self._hosts, private=private)
        self._slots = asyncio.Semaphore(MAX_CONCURRENT)
        self._http = outgoing.session(timeout, private=private)
        self.failures = 0
        """Answers, or their absence, that speak of the API's own trouble."""
        self.refused = 0
        """Transactions it will never take, or requests it does not understand."""
        self._told = Seldom(TELL_SECONDS, 1)
        self._asks_gateway_at = 0.0
        """From when on the gateway's question is asked (again)."""

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    async def account(self, pubkey: bytes) -> ChainAccount:
        """The account; nothing at all for an address the chain does not know. Raises `ChainApiError`."""
        # Who guards it the public API tells only to those who want to know.
        status, body = await self._get(f"{self._base_url}/accounts/{address.encode(pubkey)}?withGuardianInfo=true")
        if status == 404:
            if any(words in body for words in NO_ROUTE):
                raise ChainApiError(f"there is no chain API at {self._base_url}: it knows no /accounts")
            return ChainAccount(0, 0, b"")
        try:
            account = msgspec.json.decode(body, type=_AccountJson)
            if not (account.balance.isascii() and account.balance.isdigit()):
                raise ValueError(account.balance)
            pending = bool(account.pending_guardian_address)
            return ChainAccount(account.nonce, int(account.balance), account.guardian(), pending)
        except (ValueError, RecursionError):
            raise ChainApiError("the chain API answered something that is no account") from None

    async def balance(self, pubkey: bytes) -> ChainBalance:
        """What an account holds, and at which block where the API has a gateway's question. Raises `ChainApiError`."""
        if self._asks_gateway_at <= time.monotonic():
            status, body = await self._get(f"{self._base_url}/address/{address.encode(pubkey)}?onFinalBlock=true")
            found = _read_balance(body) if status == 200 else None
            if found is not None:
                return found
            self._asks_gateway_at = time.monotonic() + GATEWAY_SECONDS
        account = await self.account(pubkey)
        return ChainBalance(account.nonce, account.balance)

    async def round_ms(self) -> int:
        """How long a round is by the network's configuration. Raises `ChainApiError`."""
        status, body = await self._get(f"{self._base_url}/network/config")
        try:
            return msgspec.json.decode(body, type=_NetworkJson).data.config.erd_round_duration
        except (ValueError, RecursionError):
            raise ChainApiError(f"the chain API answered {status} and no erd_round_duration") from None

    async def submit(self, tx: Transaction) -> Taken:
        """Hand a transaction to the API; whether it took it, never will, or may later."""
        body = msgspec.json.encode(to_json(tx))
        headers = {"Content-Type": "application/json"}
        try:
            async with (
                self._slots,
                self._http.post(
                    f"{self._base_url}/transactions", data=body, headers=headers, allow_redirects=False
                ) as response,
            ):
                if response.status < 300:
                    return "taken"
                text = (await _start(response, MAX_TEXT)).decode("utf-8", "replace")
                kind = node_errors.classify(response.status, text)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            kind, text = "provider", str(error)
        self._tell(kind, text)
        if kind in ("transaction", "request"):
            self.refused += 1
            return "never"
        self.failures += 1
        return "later"

    async def simulate(self, tx: Transaction) -> bool:
        """Whether a transaction would succeed as things are; its relayer need not have signed it.

        Raises `ChainApiError` when the API does not say.
        """
        url = f"{self._base_url}/transaction/simulate?checkSignature=false"
        headers = {"Content-Type": "application/json"}
        body = msgspec.json.encode(to_json(tx))
        try:
            async with (
                self._slots,
                self._http.post(url, data=body, headers=headers, allow_redirects=False) as response,
            ):
                answer = await _start(response, MAX_ANSWER + 1)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ChainApiError(f"the chain API cannot be reached: {error}"[:200]) from None
        if response.status < 300 and len(answer) <= MAX_ANSWER:
            return _read_simulation(answer)
        text = answer[:MAX_TEXT].decode("utf-8", "replace")
        if node_errors.classify(response.status, text) == "transaction":
            return False
        raise ChainApiError(f"the chain API answered {response.status} to a simulation: {text[:100]}")

    def _tell(self, kind: str, text: str) -> None:
        """Log that a transaction was not taken, once a second: clients can send many that never are."""
        if self._told.is_due(kind, time.monotonic()):
            log.warning("the chain API did not take a transaction", extra={"kind": kind, "error": text[:200]})

    async def gossip_peers(self, url: str) -> tuple[str, ...]:
        """The multiaddresses that `url` lists. Raises `ChainApiError`."""
        try:
            outgoing.check_url(url, self._hosts, private=self._private)
        except outgoing.ForbiddenError as error:
            raise ChainApiError(str(error)) from None
        status, body = await self._get(url)
        try:
            return tuple(msgspec.json.decode(body, type=_PeersJson).peers)
        except (ValueError, RecursionError):
            raise ChainApiError(f"{url} answered {status} and no list of peers") from None

    async def _get(self, url: str) -> tuple[int, bytes]:
        try:
            async with self._slots, self._http.get(url, allow_redirects=False) as response:
                body = await _start(response, MAX_ANSWER + 1)
                if len(body) > MAX_ANSWER:
                    raise ChainApiError(f"the chain API's answer is longer than {MAX_ANSWER} bytes")
                if response.status in (200, 404):
                    return response.status, body
                kind = NotToldError if response.status in NOT_TOLD else ChainApiError
                raise kind(f"the chain API answered {response.status}")
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ChainApiError(f"the chain API cannot be reached: {error}"[:200]) from None


def _read_balance(body: bytes) -> ChainBalance | None:
    """A gateway's answer of an account; `None` where it names no block."""
    try:
        data = msgspec.json.decode(body, type=_GatewayJson).data
        block_hash = bytes.fromhex(data.block_info.hash)
    except (ValueError, RecursionError):
        return None
    text = data.account.balance
    if not block_hash or not (text.isascii() and text.isdigit()):
        return None
    return ChainBalance(data.account.nonce, int(text), data.block_info.nonce, block_hash)


def _read_simulation(body: bytes) -> bool:
    """Whether all shards say that it succeeds. Raises `ChainApiError`."""
    try:
        result = msgspec.json.decode(body, type=_SimulationAnswer).data.result
        if b'"senderShard"' in bytes(result):
            both = msgspec.json.decode(result, type=_BothShardsJson)
            return both.sender_shard.succeeded and both.receiver_shard.succeeded
        return msgspec.json.decode(result, type=_SimulatedJson).succeeded
    except (ValueError, RecursionError):
        raise ChainApiError("the chain API answered something that is no simulation") from None


async def _start(response: aiohttp.ClientResponse, most: int) -> bytes:
    """The first `most` bytes of an answer, or all of it: one `read` gives no more than what has come by then."""
    body = b""
    while len(body) < most and (part := await response.content.read(most - len(body))):
        body += part
    return body
