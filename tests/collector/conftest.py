"""A stand-in gateway: the wire forms of the real one, over pool states recorded on mainnet."""

import asyncio
import base64
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from millrace.chain import address
from millrace.chain.abi import nested_biguint, nested_bool, nested_bytes, nested_list, nested_uint, top_uint
from millrace.chain.address import ESDT_SYSTEM_CONTRACT
from millrace.collector import known

UNIT = 10**18
XEXCHANGE = address.decode(known.XEXCHANGE_ROUTER)
ONEDEX = address.decode(known.ONEDEX_ROUTER)
WEGLD_USDC = address.decode("erd1qqqqqqqqqqqqqpgqeel2kumf0r8ffyhth7pqdujjat9nx0862jpsg2pqaq")
SEGLD_WEGLD = address.decode("erd1qqqqqqqqqqqqqpgqaf8fzwmas77xxr7qwnxd6j3qsctv55e74fvsmvq675")
USDT_ASH = address.decode("erd1qqqqqqqqqqqqqpgqn7969pvzaatp8p9yu6u5h2ce2gyw0x9j4fvsplvthl")
JEX_WEGLD = address.decode("erd1qqqqqqqqqqqqqpgquenuwz852khuxcau49md27wk2qp03v4s6avsdvmxkc")
JEX_STABLE = address.decode("erd1qqqqqqqqqqqqqpgqahfmv4apudlzgawgcvp2zr65dtufqfmy6avsazkewu")
OWNER = b"\x0e" * 32
COLLECTOR = bytes(8) + b"\x0c" * 24
MEX_WEGLD = bytes(8) + b"\x0d" * 24

DECIMALS = {
    "WEGLD-bd4d79": 18,
    "USDC-c76f1f": 6,
    "USDT-f8c08c": 6,
    "ESTAR-461bab": 18,
    "MPH-f8ea2b": 18,
    "ONE-f9954f": 18,
    "RDG-e413f1": 18,
    "PADAWAN-a17f58": 18,
    "TGR-68da1e": 18,
    "SEGLD-3ad2d0": 18,
    "ASH-a642d1": 18,
    "JEX-9040ca": 18,
}


def text(identifier: str) -> bytes:
    return nested_bytes(identifier.encode())


def onedex_pair(
    pair_id: int, state: int, first: str, second: str, lp: str, held: tuple[int, int, int], fee: int | None
) -> bytes:
    """A pair as the contract nests it: without a fee of its own as in 2023, or with eight bytes more."""
    data = nested_uint(pair_id, 4) + nested_uint(state, 1) + nested_bool(True) + OWNER
    data += text(first) + text(second) + text(lp) + nested_uint(18, 4)
    data += b"".join(nested_biguint(amount) for amount in held) + nested_bool(True)
    return data if fee is None else data + nested_uint(fee, 8)


def jex_status(paused: bool = False) -> bytes:
    data = nested_bool(paused)
    data += text("WEGLD-bd4d79") + nested_biguint(561977377857549639494)
    data += text("JEX-9040ca") + nested_biguint(7566136604933995627688221)
    data += text("LPJEXWEGLD-2bccc4") + nested_biguint(5 * UNIT) + OWNER
    data += nested_uint(20, 4) + nested_uint(20, 4) + b"\x01" + OWNER
    return data + b"".join(nested_biguint(7) for _ in range(6))


def jex_stable_status(prices: bool = True) -> bytes:
    data = nested_bool(False) + nested_uint(256, 4) + nested_uint(2, 4)
    data += nested_list([text("USDT-f8c08c"), text("USDC-c76f1f")])
    data += nested_list([nested_biguint(411423569165), nested_biguint(300289266690)])
    data += text("LPUSDCUSDT-fd8cf1") + nested_biguint(711_000 * UNIT) + OWNER + nested_uint(500, 4) + b"\x00"
    data += nested_list([nested_biguint(1)] * 2) * 3
    return data + nested_list([nested_biguint(UNIT)] * 2) if prices else data


def recorded_views() -> dict[tuple[bytes, str, tuple[bytes, ...]], list[bytes]]:
    """(contract, function, arguments) to values, from the states on record."""
    views: dict[tuple[bytes, str, tuple[bytes, ...]], list[bytes]] = {}

    def tell(contract: bytes, function: str, *values: bytes, args: tuple[bytes, ...] = ()) -> None:
        views[contract, function, args] = list(values)

    tell(XEXCHANGE, "getAllPairContractMetadata", text("WEGLD-bd4d79") + text("USDC-c76f1f") + WEGLD_USDC)
    held = (81478482319716395147753, 4878990096191, 9390873908175)
    tell(WEGLD_USDC, "getReservesAndTotalSupply", *map(top_uint, held))
    tell(WEGLD_USDC, "getTotalFeePercent", top_uint(300))
    tell(WEGLD_USDC, "getSpecialFee", top_uint(50))
    tell(WEGLD_USDC, "getState", b"\x01")
    tell(WEGLD_USDC, "getFeeState", b"\x01")
    tell(WEGLD_USDC, "getLpTokenIdentifier", b"EGLDUSDC-594e5e")
    # Where its special fee goes is not on record; this is one of the ways there are.
    tell(WEGLD_USDC, "getFeesCollectorAddress", COLLECTOR)
    tell(WEGLD_USDC, "getFeesCollectorCutPercentage", top_uint(50_000))
    tell(WEGLD_USDC, "getFeeDestinations", bytes(32) + text("MEX-455c57"))
    tell(WEGLD_USDC, "getTrustedSwapPairs", text("MEX-455c57") + text("WEGLD-bd4d79") + MEX_WEGLD)

    tell(ONEDEX, "getMainPairTokens", b"WEGLD-bd4d79", b"USDC-c76f1f", b"USDT-f8c08c", b"ONE-f9954f")
    tell(ONEDEX, "getLastPairId", top_uint(947))
    for function, fee in (("getTotalFeePercent", 30), ("getSpecialFeePercent", 1), ("getStakingRewardFeePercent", 9)):
        tell(ONEDEX, function, top_uint(fee))
    pairs = [
        onedex_pair(
            1, 1, "ESTAR-461bab", "WEGLD-bd4d79", "ESTARWEGLD-083383",
            (5778262593545844309096675, 25303833973033426692, 89825690509080200982), 100,
        ),
        onedex_pair(
            2, 1, "MPH-f8ea2b", "WEGLD-bd4d79", "MPHWEGLD-3deb18", (69, 264612852228120072, 142391218207681836), 40
        ),
        onedex_pair(
            9, 1, "ONE-f9954f", "WEGLD-bd4d79", "ONEWEGLD-892244",
            (1515337284792026638369995, 4338610389278931476333, 1295607106382727806181), 100,
        ),
        onedex_pair(
            121, 2, "PADAWAN-a17f58", "TGR-68da1e", "PADAWANTGR-35cf02",
            (79791000000000000000000, 31500000000000000000000000, 79791000000000000000000), None,
        ),
        onedex_pair(200, 0, "RDG-e413f1", "WEGLD-bd4d79", "RDGWEGLD-000001", (5, 5, 5), 40),
        onedex_pair(201, 1, "RDG-e413f1", "USDC-c76f1f", "RDGUSDC-000001", (0, 0, 0), 40),
    ]  # fmt: skip
    late = onedex_pair(
        947, 1, "RDG-e413f1", "ONE-f9954f", "RDFUN-778d75",
        (199900769047071311912546297, 3934058465311303128121, 3800000000000000000002), 100,
    )  # fmt: skip
    for start in range(0, 1000, 200):
        page = pairs if start == 0 else [late] if start == 800 else []
        tell(ONEDEX, "viewPairsPaginated", *page, args=(top_uint(start), top_uint(200)))

    tell(JEX_WEGLD, "getStatus", jex_status())
    tell(JEX_STABLE, "getStatus", jex_stable_status())

    tell(SEGLD_WEGLD, "getTokens", text("SEGLD-3ad2d0") + text("WEGLD-bd4d79"))
    for token, balance, price in (
        ("SEGLD-3ad2d0", 57029637408868858510691, 1054372717511654654),
        ("WEGLD-bd4d79", 21177174423902697615022, UNIT),
    ):
        tell(SEGLD_WEGLD, "getBalances", top_uint(balance), args=(token.encode(),))
        tell(SEGLD_WEGLD, "getTokenPrice", top_uint(price), args=(token.encode(), top_uint(UNIT)))
    for function, number in (
        ("getAmpFactor", 256),
        ("getSwapFeePercent", 50),
        ("getAdminFeePercent", 50_000),
        ("getState", 1),
        ("getPoolType", 1),
    ):
        tell(SEGLD_WEGLD, function, top_uint(number))
    tell(SEGLD_WEGLD, "getTotalSupply", top_uint(78047505004762717119399))
    tell(SEGLD_WEGLD, "getLpTokenIdentifier", b"ALP-0fe50a")

    tell(USDT_ASH, "getTokens", text("USDT-f8c08c") + text("ASH-a642d1"))
    tell(USDT_ASH, "getBalances", nested_biguint(6610310763) + nested_biguint(10775028285126628963544615))
    for function, number in (
        ("getA", 400000),
        ("getGamma", 145000000000000),
        ("getD", 14713381882176947720176),
        ("getPriceScale", 758700083236071),
        ("getMidFee", 20000000),
        ("getOutFee", 40000000),
        ("getFeeGamma", 230000000000000),
        ("getAdminFee", 3333333333),
        ("getFutureAGammaTime", 0),
        ("getLpTokenSupply", 250_000 * UNIT),
    ):
        tell(USDT_ASH, function, top_uint(number))
    tell(USDT_ASH, "getLpTokenIdentifier", b"ALP-2d0cf8")

    for token, decimals in DECIMALS.items():
        values = (
            token.encode(),
            b"FungibleESDT",
            OWNER,
            b"1",
            b"0",
            f"NumDecimals-{decimals}".encode(),
            b"IsPaused-false",
        )
        tell(ESDT_SYSTEM_CONTRACT, "getTokenProperties", *values, args=(token.encode(),))
    return views


class StandIn:
    """Answers views from a table; `faults` are answers to give first, one per question, `dead` views never answer.

    `refusals` are a contract's words for a view that is not in the table, or a gateway's for a key.
    """

    def __init__(self) -> None:
        self.views = recorded_views()
        self.asked: Counter[str] = Counter()
        self.keys: dict[tuple[bytes, str], bytes] = {}
        """What contracts store; nothing else is stored anywhere."""
        self.faults: list[web.Response] = []
        self.dead: set[str] = set()
        self.hanging: set[str] = set()
        self.hung = asyncio.Event()
        """A question of those came; it is answered when the stand-in ends."""
        self.over = asyncio.Event()
        self.refusals: dict[str, str] = {}
        self.rounds: asyncio.Queue[str] = asyncio.Queue()
        self.busiest = 0
        self._now = 0
        self.url = ""

    def application(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/vm-values/query", self._query)
        app.router.add_get("/network/status/{shard}", self._status)
        app.router.add_get("/address/{address}/key/{key}", self._key)
        return app

    async def _query(self, request: web.Request) -> web.Response:
        self._now += 1
        self.busiest = max(self.busiest, self._now)
        await asyncio.sleep(0)
        try:
            body = await request.json()
            if body["funcName"] in self.hanging:
                self.hung.set()
                await self.over.wait()
            return self._answer(body)
        finally:
            self._now -= 1

    def _answer(self, body: dict[str, Any]) -> web.Response:
        self.asked[body["funcName"]] += 1
        if body["funcName"] == "getMainPairTokens":
            self.rounds.put_nowait(body["funcName"])
        if self.faults:
            return self.faults.pop(0)
        if body["funcName"] in self.dead:
            return web.Response(status=503, headers={"Retry-After": "0"})
        key = (address.decode(body["scAddress"]), body["funcName"], tuple(map(bytes.fromhex, body["args"])))
        values = self.views.get(key)
        if values is None:
            output: dict[str, Any] = {
                "returnData": None,
                "returnCode": "user error",
                "returnMessage": self.refusals.get(body["funcName"], "invalid function"),
            }
        else:
            # Nodes answer an empty value as null or as an empty string.
            items = [base64.b64encode(value).decode() or None for value in values]
            output = {"returnData": items or None, "returnCode": "ok", "returnMessage": ""}
        return web.json_response({"data": {"data": output}, "error": "", "code": "successful"})

    async def _key(self, request: web.Request) -> web.Response:
        key = bytes.fromhex(request.match_info["key"]).decode()
        self.asked[key] += 1
        if key in self.dead:
            return web.Response(status=503, headers={"Retry-After": "0"})
        if key in self.refusals:
            return web.json_response({"data": None, "error": self.refusals[key], "code": "bad_request"}, status=400)
        value = self.keys.get((address.decode(request.match_info["address"]), key), b"")
        return web.json_response({"data": {"value": value.hex()}, "error": "", "code": "successful"})

    async def _status(self, request: web.Request) -> web.Response:
        assert request.match_info["shard"] == "1"
        status = {"erd_current_round": 21000000, "erd_nonce": 20990000, "erd_block_timestamp": 1730000000}
        return web.json_response({"data": {"status": status}, "error": "", "code": "successful"})


@pytest.fixture
async def standin() -> AsyncIterator[StandIn]:
    """A running stand-in gateway."""
    stand_in = StandIn()
    server = TestServer(stand_in.application())
    await server.start_server()
    stand_in.url = str(server.make_url("/"))
    yield stand_in
    stand_in.over.set()
    await server.close()
