"""Clients of the cluster: they meet it through the balancer only, never give up, and write everything down."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import aiohttp
import msgspec

from cluster.history import Answered, Asked, Gone, History, Listening, Said, Told
from cluster.tap import signed
from cluster.wallets import as_json, transfer
from millrace.chain.address import encode
from millrace.chain.keys import KeyPair
from millrace.chain.transaction import Transaction, TransactionJson, client_hash, from_json

HOST = {"Host": "relay.example"}
"""The name that the balancer's sample serves."""
PATIENCE = 20.0
"""An answer takes less, or the connection is left as a lost one."""
TAKEN = ("conflicting transaction", "nonce too low", "signer unavailable: another relayer")
"""So begin the words of refusals that sending the same again does not help."""


class Outcome(NamedTuple):
    """Of one submission."""

    said: Said
    words: str = ""

    @property
    def is_taken(self) -> bool:
        """Whether another payload has, or had, the nonce, or this one has it elsewhere."""
        return self.words.startswith(TAKEN)


def words_of(failed: dict[str, Any]) -> str:
    """Why something was refused, with the detail."""
    return ": ".join(filter(None, (failed.get("reason"), failed.get("detail"))))


class Front:
    """What all clients of a run share."""

    def __init__(self, history: History, address: str, chance: random.Random) -> None:
        self.history, self.address, self.chance = history, address, chance
        self.relayers: list[str] = []
        """Their own addresses."""
        self.numbers, self.operations = itertools.count(1), itertools.count(1)
        self.done = False
        """Clients begin nothing new, and listen on."""
        self.over = False
        """They leave."""
        self.counts: Counter[str] = Counter()
        self.open: dict[int, str] = {}
        """Operations that are not answered, and what is asked."""
        self.http: aiohttp.ClientSession | None = None

    @property
    def session(self) -> aiohttp.ClientSession:
        assert self.http is not None
        return self.http

    def url(self, path: str) -> str:
        return f"http://{self.address}{path}"

    def accepted(self) -> int:
        """Acknowledged submissions that had to be claimed."""
        return self.counts["relay accepted"]

    def acknowledged(self) -> int:
        """All acknowledged submissions."""
        return sum(times for what, times in self.counts.items() if what.endswith(" accepted"))

    def served(self) -> int:
        """The same, and what was refused as the budget is spent, which only who could claim says."""
        return self.accepted() + self.counts["budget exhausted"]

    def begin(self, action: str, tx: Transaction, line: int = 0) -> int:
        """Write down that this is asked; the number of the operation."""
        op = next(self.operations)
        self.open[op] = action
        sender, payload = encode(tx.sender), client_hash(tx).hex()
        self.history.add(Asked(op=op, action=action, sender=sender, nonce=tx.nonce, payload=payload, line=line))
        return op

    def end(self, op: int, outcome: Outcome) -> Outcome:
        """Write down how it was answered."""
        self.history.add(Answered(op=op, said=outcome.said, words=outcome.words))
        action = self.open.pop(op)
        reason, _, _ = outcome.words.partition(": ")
        self.counts[reason if outcome.said == "refused" else f"{action} {outcome.said}"] += 1
        return outcome


class Connection:
    """One WebSocket of a client. Use `connected`."""

    def __init__(self, front: Front, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.number = next(front.numbers)
        self._front, self._socket = front, socket
        self._replies: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._requests = itertools.count(1)
        self.reader = asyncio.create_task(self._read())

    async def ask(self, **message: Any) -> dict[str, Any]:
        """The reply. Raises `ConnectionError` when there is none in time."""
        number = next(self._requests)
        reply = self._replies[number] = asyncio.get_running_loop().create_future()
        try:
            await self._socket.send_json({**message, "requestId": number})
            async with asyncio.timeout(PATIENCE):
                return await reply
        except TimeoutError:
            raise ConnectionError("no answer in time") from None
        finally:
            del self._replies[number]

    async def listen(self, topic: str) -> None:
        """Subscribe; anything but an acknowledgement is a lost connection."""
        answer = await self.ask(action="subscribe", topic=topic)
        if answer.get("status") != "ok":
            raise ConnectionError(f"not subscribed: {answer}")
        self.listening(topic)

    def listening(self, topic: str) -> None:
        self._front.history.add(Listening(line=self.number, topic=topic))

    async def submit(self, action: str, tx: Transaction) -> Outcome:
        """Relay or broadcast, and listen to what becomes of it. Raises `ConnectionError` without an answer."""
        op = self._front.begin(action, tx, self.number)
        try:
            reply = await self.ask(action=action, tx=as_json(tx), autoSubscribe=True)
        except OSError:
            self._front.end(op, Outcome("lost"))
            raise
        for item in reply.get("results", ()):
            if "relayerSignature" in item:
                whole = msgspec.structs.replace(tx, relayer_signature=bytes.fromhex(item["relayerSignature"]))
                self._front.history.add(signed(whole, "reply"))
            if "topic" in item:
                self.listening(item["topic"])
        if reply.get("hashes"):
            return self._front.end(op, Outcome("accepted"))
        failed = reply["failed"][0] if reply.get("failed") else reply
        return self._front.end(op, Outcome("refused", words_of(failed)))

    async def _read(self) -> None:
        try:
            async for message in self._socket:
                if message.type is aiohttp.WSMsgType.TEXT:
                    self._take(msgspec.json.decode(message.data))
        finally:
            self._front.history.add(Gone(line=self.number))
            for reply in self._replies.values():
                if not reply.done():
                    reply.set_exception(ConnectionError("the connection has ended"))

    def _take(self, message: dict[str, Any]) -> None:
        if "action" in message:
            reply = self._replies.get(message.get("requestId", 0))
            if reply is not None and not reply.done():
                reply.set_result(message)
            return
        history, data = self._front.history, message.get("data", {})
        match message["type"]:
            case "tx-status":
                history.add(Told(line=self.number, topic=f"tx-status/{data['hash']}", status=data["status"]))
            case "accountDelta":
                history.add(Told(line=self.number, topic=f"address/{data['address']}", number=data["nonce"]))
            case "networkStats":
                history.add(Told(line=self.number, topic="networkStats", number=message["sequence"]))


@contextlib.asynccontextmanager
async def connected(front: Front, path: str = "/ws", address: str = "") -> AsyncIterator[Connection]:
    """A connection, through the balancer unless there is an address. Raises `OSError` or `aiohttp.ClientError`."""
    timeout = aiohttp.ClientWSTimeout(ws_close=1)
    async with asyncio.timeout(PATIENCE) as patience:
        url = f"http://{address or front.address}{path}"
        async with front.session.ws_connect(url, headers=HOST, timeout=timeout) as socket:
            patience.reschedule(None)
            connection = Connection(front, socket)
            try:
                yield connection
            finally:
                connection.reader.cancel()
                await asyncio.gather(connection.reader, return_exceptions=True)


class Client:
    """Connects, works, and connects again."""

    def __init__(self, front: Front) -> None:
        self.front = front

    async def run(self) -> None:
        """Until the run is over."""
        while not self.front.over:
            try:
                async with connected(self.front) as connection:
                    await self.begin(connection)
                    while not self.front.done and not connection.reader.done():
                        await self.step(connection)
                    while not self.front.over and not connection.reader.done():
                        await asyncio.sleep(0.05)
            except (aiohttp.ClientError, OSError):
                self.front.counts["connections lost"] += 1
                await asyncio.sleep(0.1)

    async def begin(self, connection: Connection) -> None:
        """What is done once on each connection."""

    async def step(self, connection: Connection) -> None:
        """What is done again and again; connections that are lost meanwhile raise."""
        raise NotImplementedError


class Sender(Client):
    """One wallet's transactions, nonce after nonce."""

    action = "relay"
    choices = 2
    """Payloads it has for each nonce."""

    def __init__(self, front: Front, pair: KeyPair, pause: float) -> None:
        super().__init__(front)
        self.pair, self.pause = pair, pause
        self.nonce = self.choice = 0

    def payload(self, choice: int) -> Transaction:
        return transfer(self.pair, self.nonce, choice, relayed=self.action != "broadcast")

    async def step(self, connection: Connection) -> None:
        tx = self.payload(self.choice)
        if self.front.chance.random() < 0.5:
            await connection.listen(f"tx-status/{client_hash(tx).hex()}")
        try:
            outcome = await self.submit(connection, tx)
        except OSError:
            self.choice = self.front.chance.randrange(self.choices)  # nobody knows what became of it
            raise
        await self.go_on(outcome)

    async def submit(self, connection: Connection, tx: Transaction) -> Outcome:
        return await connection.submit(self.action, tx)

    async def go_on(self, outcome: Outcome) -> None:
        """To the next nonce, or to another payload of this one, or to the same a little later."""
        if outcome.said == "accepted":
            self._next()
        elif outcome.is_taken:
            self.choice = (self.choice + 1) % self.choices
            # What a key of theirs signed any relayer accepts again; what was only broadcast only the one that took it.
            if self.action == "broadcast" and outcome.words.startswith("nonce too low"):
                self.front.counts["went on without an answer"] += 1  # it was executed, as the service says
                self._next()
        patience = 4 if outcome.words.startswith("budget exhausted") else 1
        await asyncio.sleep(patience * self.pause * self.front.chance.random())

    def _next(self) -> None:
        self.nonce += 1
        self.choice = 0


class Rival(Sender):
    """Sends both payloads of a nonce at once, to the balancer and to every relayer that is there."""

    async def submit(self, connection: Connection, tx: Transaction) -> Outcome:
        front = self.front
        if front.chance.random() < 0.5:
            return await super().submit(connection, tx)
        payloads = itertools.cycle((self.payload((self.choice + 1) % self.choices), tx))
        relayers = front.chance.sample(front.relayers, len(front.relayers))
        through, *direct = await asyncio.gather(
            connection.submit(self.action, tx), *map(self._submit_to, relayers, payloads), return_exceptions=True
        )
        for outcome in (through, *direct):
            if isinstance(outcome, Outcome) and outcome.said == "accepted":
                return outcome
        if isinstance(through, BaseException):
            raise through
        return through

    async def _submit_to(self, address: str, tx: Transaction) -> Outcome:
        try:
            async with connected(self.front, address=address) as connection:
                return await connection.submit(self.action, tx)
        except (aiohttp.ClientError, OSError):
            return Outcome("lost")


class Broadcaster(Sender):
    """Pays for itself."""

    action = "broadcast"
    choices = 1


class Signing(Sender):
    """Has its transactions signed over REST and broadcasts them itself; what it gets no signature of it has relayed."""

    choices = 1

    async def submit(self, connection: Connection, tx: Transaction) -> Outcome:
        outcome, whole = await self._sign(tx)
        if whole is not None:
            return await connection.submit("broadcast", whole)
        if outcome.said == "lost" or outcome.is_taken:
            return await connection.submit("relay", tx)
        return outcome

    async def _sign(self, tx: Transaction) -> tuple[Outcome, Transaction | None]:
        front = self.front
        op = front.begin("sign", tx)
        try:
            async with asyncio.timeout(PATIENCE):
                async with front.session.post(
                    front.url("/v1/sign"), json={"transactions": [as_json(tx)]}, headers=HOST
                ) as answer:
                    status, body = answer.status, await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError):
            return front.end(op, Outcome("lost")), None
        if status >= 500:  # of the balancer's own errors the body is no JSON
            return front.end(op, Outcome("lost")), None
        reply = msgspec.json.decode(body)
        if reply.get("transactions"):
            whole = from_json(msgspec.convert(reply["transactions"][0], TransactionJson))
            front.history.add(signed(whole, "reply"))
            return front.end(op, Outcome("accepted")), whole
        words = words_of(reply["failed"][0]) if reply.get("failed") else reply.get("error", "")
        return front.end(op, Outcome("refused", words)), None


class Reader(Client):
    """Hears of accounts."""

    def __init__(self, front: Front, addresses: list[str]) -> None:
        super().__init__(front)
        self._topics = [f"address/{address}" for address in addresses]

    async def begin(self, connection: Connection) -> None:
        for topic in self._topics:
            await connection.listen(topic)

    async def step(self, connection: Connection) -> None:
        await asyncio.sleep(0.05)


class Watcher(Client):
    """Hears of the network on the stream that takes no messages."""

    async def run(self) -> None:
        while not self.front.over:
            try:
                async with connected(self.front, "/ws/stats") as connection:
                    while not self.front.over and not connection.reader.done():
                        await asyncio.sleep(0.05)
            except (aiohttp.ClientError, OSError):
                await asyncio.sleep(0.1)
