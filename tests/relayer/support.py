"""What tests of the relayer share: wallets, signed transactions, blocks, and stand-ins for hub and chain API."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from millrace.chain import address, bigint, outport
from millrace.chain.keys import KeyPair
from millrace.chain.network import NetworkProfile, profile
from millrace.chain.proto import hub_pb2
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.transaction import Transaction, chain_hash, signing_message, to_json
from millrace.relayer.events import window
from millrace.relayer.journal import identity
from millrace.relayer.rules.policy_file import seal
from millrace.relayer.rules.stages import Origin
from millrace.relayer.settings import RelayerSettings
from millrace.relayer.submission.batch import Accepted
from millrace.runtime import http, websocket
from millrace.system.ports import free_ports

NETWORK: NetworkProfile = profile("documented", chain_id="local")
GAS_PRICE = 10**9


def wallet(shard: int, number: int = 0) -> KeyPair:
    """The `number`-th wallet of a shard, always the same one."""
    found = -1
    seed = 0
    while True:
        seed += 1
        pair = KeyPair.from_seed(seed.to_bytes(32, "big"))
        if NETWORK.shard_of(pair.public) == shard:
            found += 1
            if found == number:
                return pair


RELAYERS = {shard: wallet(shard, 50) for shard in range(3)}


def sign(tx: Transaction, pair: KeyPair, **changes: Any) -> Transaction:
    """The transaction with changes, then signed by its sender."""
    tx = msgspec.structs.replace(tx, **changes)
    return msgspec.structs.replace(tx, signature=pair.sign(signing_message(tx)))


def transfer(
    pair: KeyPair, nonce: int = 0, *, relayed: bool = True, receiver: bytes | None = None, **changes: Any
) -> Transaction:
    """A signed transfer of nothing from a wallet; relayed ones name the relayer of its shard."""
    shard = NETWORK.shard_of(pair.public)
    tx = Transaction(
        nonce=nonce,
        value=0,
        receiver=receiver or wallet(shard, 20).public,
        sender=pair.public,
        gas_price=GAS_PRICE,
        gas_limit=100_000 + 1_500 * len(changes.get("data", b"")),
        chain_id=NETWORK.chain_id,
        relayer=RELAYERS[shard].public if relayed else b"",
    )
    return sign(tx, pair, **changes)


def as_json(tx: Transaction) -> dict[str, Any]:
    """The transaction object of the public interface."""
    built: dict[str, Any] = msgspec.to_builtins(to_json(tx))
    return built


def raw(tx: Transaction | dict[str, Any]) -> msgspec.Raw:
    """The same as text."""
    return msgspec.Raw(msgspec.json.encode(tx if isinstance(tx, dict) else as_json(tx)))


def write_keys(directory: Path) -> tuple[str, ...]:
    """PEM files of the three relayers."""
    directory.mkdir(parents=True, exist_ok=True)
    files = []
    for shard, pair in RELAYERS.items():
        file = directory / f"shard{shard}.pem"
        file.touch(mode=0o600)
        file.write_text(pair.to_pem())
        files.append(str(file))
    return tuple(files)


# ---- blocks


def tx_message(tx: Transaction) -> pb.Transaction:
    """A transaction as blocks carry it."""
    return pb.Transaction(
        nonce=tx.nonce,
        value=bigint.encode(tx.value),
        receiver=tx.receiver,
        sender=tx.sender,
        gasPrice=tx.gas_price,
        gasLimit=tx.gas_limit,
        data=tx.data,
        chainID=tx.chain_id.encode(),
        version=tx.version,
        options=tx.options,
        signature=tx.signature,
        guardian=tx.guardian,
        guardianSignature=tx.guardian_signature,
        relayer=tx.relayer,
        relayerSignature=tx.relayer_signature,
        sndUserName=tx.sender_username,
        rcvUserName=tx.receiver_username,
    )


class BlockMaker:
    """Builds SaveBlock messages of one shard, one on top of the other."""

    def __init__(self, shard: int) -> None:
        self.shard = shard
        self.nonce = 0
        self.previous = b"\0" * 32

    def block(
        self,
        transactions: list[Transaction] = (),  # type: ignore[assignment]
        *,
        accounts: dict[bytes, tuple[int, int]] | None = None,
        failing: dict[bytes, str] | None = None,
        at_destination: bool = False,
    ) -> pb.OutportBlock:
        """A block with these transactions; `failing` maps a chain hash to the contract's words."""
        self.nonce += 1
        header = pb.Header(
            nonce=self.nonce,
            round=self.nonce,
            prevHash=self.previous,
            shardID=self.shard,
            timeStamp=1_700_000_000 + 6 * self.nonce,
            txCount=len(transactions),
            accumulatedFees=bigint.encode(5),
            developerFees=bigint.encode(1),
            leaderSignature=b"\x01\x02",
        )
        block_hash = bytes([self.shard]) + self.nonce.to_bytes(31, "big")
        self.previous = block_hash
        message = pb.OutportBlock(shardID=self.shard)
        data = message.blockData
        data.shardID, data.headerHash, data.headerType = self.shard, block_hash, "HeaderV2"
        data.headerBytes = pb.HeaderV2(header=header).SerializeToString()
        data.timestampMs = header.timeStamp * 1000
        for tx in transactions:
            tx_hash = chain_hash(tx)
            sender, receiver = NETWORK.shard_of(tx.sender), NETWORK.shard_of(tx.receiver)
            data.body.miniBlocks.append(
                pb.MiniBlock(txHashes=[tx_hash], senderShardID=sender, receiverShardID=receiver, type=0)  # type: ignore[arg-type]
            )
            info = message.transactionPool.transactions[tx_hash.hex()]
            info.transaction.CopyFrom(tx_message(tx))
            info.feeInfo.fee = bigint.encode(50_000 * tx.gas_price)
            if failing and tx_hash in failing:
                words = failing[tx_hash].encode()
                event = pb.Event(identifier=b"signalError", topics=[tx.sender, words], data=b"@75736572206572726f72")
                message.transactionPool.logs.append(pb.LogData(txHash=tx_hash.hex(), log=pb.Log(events=[event])))
        for pubkey, (nonce, balance) in (accounts or {}).items():
            text = address.encode(pubkey)
            message.alteredAccounts[text].CopyFrom(pb.AlteredAccount(address=text, nonce=nonce, balance=str(balance)))
        return message


# ---- stand-ins


class FakeHub:
    """A hub that keeps every event and serves it from where a consumer wants."""

    def __init__(self) -> None:
        self.events: list[tuple[str, bytes]] = []
        self.acked = 0
        self.traces: list[str] = []
        """What acknowledgements said of traces."""
        self.resumed_after: list[int | None] = []
        self.links: list[websocket.Session] = []
        self.looking_back: list[websocket.Session] = []
        """Those that read what was, for statistics."""
        self.server: websocket.WsServer | None = None
        self.subscribed = asyncio.Event()

    async def start(self, port: int = 0) -> int:
        """Listen: by default on a port that stays free while the hub is away."""
        hub = self

        class Link(websocket.Session):
            looks_back = False

            def on_message(self, kind: websocket.Kind, data: bytes) -> None:
                envelope = outport.decode_envelope(data)
                if envelope.type == outport.ACK:
                    if self.looks_back:
                        return
                    hub.acked = max(hub.acked, envelope.counter)
                    hub.traces += envelope.traces
                    return
                wish = hub_pb2.SubscribeEvent.FromString(envelope.payload)
                after = wish.resume_after if wish.HasField("resume_after") else None
                reply = hub_pb2.SubscribeReply(subscription_id=wish.subscription_id, ok=True, head=len(hub.events))
                self.send_binary(outport.payload_envelope("subscribe", reply.SerializeToString(), 0))
                self.looks_back = wish.subscription_id == window.SUBSCRIPTION
                if self.looks_back:
                    hub.looking_back.append(self)
                else:
                    hub.resumed_after.append(after)
                    hub.links.append(self)
                if after is not None:
                    for sequence in range(after + 1, len(hub.events) + 1):
                        hub.deliver(sequence, self)
                if not self.looks_back:
                    hub.subscribed.set()

            def on_close(self) -> None:
                for links in (hub.links, hub.looking_back):
                    if self in links:
                        links.remove(self)

        self.server = await websocket.serve(lambda _: Link(), "127.0.0.1", port or free_ports(1)[0])
        return self.server.port

    async def acknowledged(self, sequence: int) -> None:
        """Wait until an event was taken in."""
        async with asyncio.timeout(10):
            while self.acked < sequence:
                await asyncio.sleep(0.01)

    def deliver(self, sequence: int, link: websocket.Session) -> None:
        topic, payload = self.events[sequence - 1]
        link.send_binary(outport.payload_envelope(topic, payload, sequence))

    def push(self, topic: str, message: Any) -> None:
        """Append an event and send it to whoever is connected."""
        self.events.append((topic, message.SerializeToString()))
        for link in (*self.links, *self.looking_back):
            self.deliver(len(self.events), link)

    def save(self, block: pb.OutportBlock, *, final: bool = True) -> None:
        """A saved block, and its finality."""
        self.push(outport.SAVE_BLOCK, block)
        if final:
            self.finalise(block)

    def finalise(self, block: pb.OutportBlock) -> None:
        message = pb.FinalizedBlock(shardID=block.shardID, headerHash=block.blockData.headerHash)
        self.push(outport.FINALIZED_BLOCK, message)

    async def stop(self) -> None:
        if self.server is not None:
            await self.server.close(grace=0.2)
            self.server = None


class FakeChainApi:
    """A chain API with accounts that tests set, and a list of what was submitted."""

    def __init__(self) -> None:
        self.accounts: dict[str, tuple[int, int]] = {}
        self.default = (0, 10**18)
        self.guardians: dict[str, bytes] = {}
        self.pending: dict[str, bytes] = {}
        """Guardians that do not count yet."""
        """Active guardians; an account that is not here is not spoken of."""
        self.asked: list[str] = []
        self.submitted: list[dict[str, Any]] = []
        self.arrived = asyncio.Event()
        self.down = False
        self.blocks: dict[int, tuple[int, bytes]] = {}
        """Height and hash of the block of each shard that accounts are read at; without one nothing is said of it."""
        self.simulated: list[dict[str, Any]] = []
        self.outcome: dict[str, Any] | None = {"status": "success"}
        """Of every simulation; `None` answers none."""
        self.round_ms: int | None = 600
        """By the network's configuration; `None`: it knows none."""
        self.config_asked = 0
        self._server: http.HttpServer | None = None

    async def start(self) -> str:
        app = http.make_app()
        app.add_routes(
            [
                web.get("/accounts/{address}", self._account),
                web.get("/address/{address}", self._address),
                web.post("/transactions", self._submit),
                web.post("/transaction/simulate", self._simulate),
                web.get("/network/config", self._config),
            ]
        )
        self._server = http.HttpServer(app)
        return f"http://127.0.0.1:{await self._server.start('127.0.0.1', 0)}"

    def set(self, pubkey: bytes, nonce: int, balance: int) -> None:
        self.accounts[address.encode(pubkey)] = (nonce, balance)

    async def _config(self, _: web.Request) -> web.Response:
        self.config_asked += 1
        if self.down or self.round_ms is None:
            return http.error_response("down", 503 if self.down else 404)
        return http.json_response({"data": {"config": {"erd_round_duration": self.round_ms}}, "code": "successful"})

    async def _account(self, request: web.Request) -> web.Response:
        if self.down:
            return http.error_response("down", 503)
        name = request.match_info["address"]
        self.asked.append(name)
        nonce, balance = self.accounts.get(name, self.default)
        answer: dict[str, object] = {"address": name, "nonce": nonce, "balance": str(balance)}
        if name in self.guardians and request.query.get("withGuardianInfo") == "true":  # as the public API has it
            answer["isGuarded"] = bool(self.guardians[name])
            if self.guardians[name]:
                answer["activeGuardianAddress"] = address.encode(self.guardians[name])
            if name in self.pending:
                answer["pendingGuardianAddress"] = address.encode(self.pending[name])
        return http.json_response(answer)

    async def _address(self, request: web.Request) -> web.Response:
        name = request.match_info["address"]
        block = self.blocks.get(NETWORK.shard_of(address.decode(name)))
        if self.down or block is None:
            return http.error_response("down", 503 if self.down else 404)
        nonce, balance = self.accounts.get(name, self.default)
        account = {"address": name, "nonce": nonce, "balance": str(balance)}
        info = {"nonce": block[0], "hash": block[1].hex()}
        return http.json_response({"data": {"account": account, "blockInfo": info}, "code": "successful"})

    async def _submit(self, request: web.Request) -> web.Response:
        if self.down:
            return http.error_response("down", 503)
        self.submitted.append(await request.json())
        self.arrived.set()
        return http.json_response({"txHash": ""}, 201)

    async def _simulate(self, request: web.Request) -> web.Response:
        self.simulated.append(await request.json())
        if self.outcome is None:
            return http.error_response("down", 503)
        return http.json_response({"data": {"result": self.outcome}, "error": "", "code": "successful"})

    async def wait_submitted(self, count: int) -> list[dict[str, Any]]:
        """Wait until so many transactions came."""
        async with asyncio.timeout(10):
            while len(self.submitted) < count:
                self.arrived.clear()
                await self.arrived.wait()
        return self.submitted

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop()


async def start(world: Any, policy: str = "", **changes: Any) -> None:
    """Start a relayer under this policy."""
    if policy:
        file = world.folder / "policy.toml"
        file.write_text(seal(policy))
        changes["policy_file"] = str(file)
    await world.start(**changes)


async def knows_its_place(service: Any) -> None:
    """Wait until a relayer has written down where its reading of events began: before that it pays for nothing."""
    async with asyncio.timeout(10):
        while not service.bookmark.is_known and not service.settings.more_hub_urls:
            await asyncio.sleep(0.001)


async def killed_now(world: Any, *folders: Path) -> Path:
    """Copies of folders as `kill -9` would leave them at this moment, each under its name in one that is returned.

    Files are copied one after the other, so nothing may be written meanwhile: all that was begun is on disk, and the
    event loop, where everything begins, stands still until the copy is made.
    """
    async with asyncio.timeout(10):
        while world.service.journal.waiting:
            await asyncio.sleep(0.001)
    made = Path(tempfile.mkdtemp(prefix="killed", dir=world.folder))
    for folder in folders:
        shutil.copytree(folder, made / folder.name)
    return made


async def submit(world: Any, *txs: Any, kind: Any = "relay", ip: str = "ip", person: str = "") -> list[str]:
    """Submit a batch; for each transaction its reason, `ok` or `pending`."""
    submitter = world.service.submitter
    batch = await submitter.take(Origin(kind, ip, person), [raw(tx) for tx in txs])
    results = await submitter.finish(batch)
    return [_outcome(result) for result in results]


def _outcome(result: Any) -> str:
    if not isinstance(result, Accepted):
        return str(result.reason)
    return "ok" if result.chain_hash else "pending"


class Client:
    """A JSON client of /ws that keeps what it got."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.pushed: list[dict[str, Any]] = []

    async def ask(self, **message: Any) -> dict[str, Any]:
        """Send a message and wait for the next reply; pushes that come first are kept."""
        await self.socket.send_str(msgspec.json.encode(message).decode())
        return await self.reply()

    async def reply(self) -> dict[str, Any]:
        while True:
            message = await self.next()
            if "action" in message:
                return message
            self.pushed.append(message)

    async def push(self) -> dict[str, Any]:
        """The next push."""
        if self.pushed:
            return self.pushed.pop(0)
        return await self.next()

    async def next(self) -> dict[str, Any]:
        answer = await asyncio.wait_for(self.socket.receive(), 10)
        assert answer.type is aiohttp.WSMsgType.TEXT, answer
        decoded: dict[str, Any] = msgspec.json.decode(answer.data)
        return decoded


def with_identity(folder: Path) -> Path:
    """A data directory as `millrace relayer init` makes it, unless it is one."""
    if not (folder / identity.FILE).exists():
        identity.make(folder)
    return folder


def settings(data: Path, **changes: Any) -> RelayerSettings:
    """Settings of a relayer under test: free ports, no gossip, keys in files; its folder has an identity."""
    base: dict[str, Any] = {
        "port": 0,
        "http_port": 0,
        "metrics_port": 0,
        "chain_id": NETWORK.chain_id,
        "lease_dir": str(data / "leases"),
        "key_files": write_keys(data / "keys"),
        "gossip": False,
        "chain_api_url": "",
        "hub_url": "",
    }
    if "data_dir" not in changes:
        base["data_dir"] = with_identity(data / "relayer")
    return RelayerSettings(**(base | changes))


@contextlib.asynccontextmanager
async def connected(url: str, address: str = "") -> Any:
    """A client of /ws, from another address where the relayer trusts what this machine says of it."""
    headers = {"X-Forwarded-For": address} if address else None
    async with (
        aiohttp.ClientSession() as http_session,
        http_session.ws_connect(url, max_msg_size=0, headers=headers) as socket,
    ):
        yield Client(socket)


# ---- what the chain says, straight to a relayer under test


class Chain:
    """Final blocks of one shard for a relayer under test, without a hub."""

    def __init__(self, world: Any, shard: int) -> None:
        self._events = world.service.events
        self._sequence = 0
        self.maker = BlockMaker(shard)

    def tell(self, topic: str, message: Any) -> None:
        self._sequence += 1
        self._events.on_event(topic, message.SerializeToString(), self._sequence)

    def save(self, *args: Any, **options: Any) -> pb.OutportBlock:
        """A block that is saved; see `BlockMaker.block`."""
        block = self.maker.block(*args, **options)
        self.tell(outport.SAVE_BLOCK, block)
        return block

    def finalise(self, block: pb.OutportBlock) -> None:
        message = pb.FinalizedBlock(shardID=block.shardID, headerHash=block.blockData.headerHash)
        self.tell(outport.FINALIZED_BLOCK, message)

    def revert(self, block: pb.OutportBlock) -> None:
        self.tell(outport.REVERT_INDEXED_BLOCK, block.blockData)

    def final(self, *args: Any, **options: Any) -> pb.OutportBlock:
        """A block that is saved and final."""
        block = self.save(*args, **options)
        self.finalise(block)
        return block


def entry_of(world: Any, tx: Transaction) -> Any:
    """The relayer's entry of a transaction in flight."""
    entry = world.service.lifecycle.inflight.of_sender(tx.sender)[tx.nonce]
    assert entry.tx.data == tx.data
    return entry
