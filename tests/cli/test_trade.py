"""The verbs of traders against services in this process: what they print, and every exit code."""

from __future__ import annotations

import asyncio
import signal
import sys
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import click
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from click.testing import CliRunner

from millrace.cli import main
from millrace.cli.shown import number, to_units, units
from millrace.cli.watch import sparkline
from millrace_client import Wallet
from servers.fake_relayer import PAYER, FakeRelayer, usual

HOP = {"dex": "JEX", "address": "erd1", "from": "A-1", "to": "B-2", "amountIn": "1500", "amountOut": "3000"}
SHORT = {"amountInShort": 1.5, "amountOutShort": 30.0}
SWAP = b"ESDTTransfer@" + b"A-1".hex().encode() + b"@05dc@786f@0b9a@@@01@" + b"B-2".hex().encode()
"""1500 of A-1, and a call of the contract that must pay 2970 of B-2."""
OWNER = Wallet(bytes(range(32))).address
SNAPSHOT = {"id": "s", "blockNonce": 7, "timestamp": 1}
QUOTE = {
    "txData": "c3dhcA==",
    "amountOutMin": "2970",
    "priceImpact": 0.01,
    "from": "A-1",
    "to": "B-2",
    "amountIn": "1500",
    "amountOut": "3000",
    "decimalsIn": 3,
    "decimalsOut": 2,
    "slippage": 0.01,
    "rate": 20.0,
    "optimalityGap": 0.0005,
    "estimatedGasLimit": 20_000_000,
    "snapshot": SNAPSHOT,
    "paths": [{"amountIn": "1500", "amountOut": "3000", **SHORT, "splitPpm": 1_000_000, "swaps": [HOP | SHORT]}],
}
TOKEN = {
    "identifier": "A-1",
    "name": "Alpha",
    "ticker": "A",
    "decimals": 3,
    "isLp": False,
    "pools": 2,
    "priceEgld": 1.0,
    "priceUsdc": 40.0,
    "liquidityEgld": 5.0,
    "liquidityUsdc": 200.0,
}
POOL = {
    "id": "p:1",
    "dex": "JEX",
    "kind": "stable",
    "address": "erd1",
    "tokens": ["A-1", "B-2"],
    "state": "active",
    "reserves": ["1", "2"],
    "reservesShort": [0.1, 0.2],
    "tradable": True,
    "lpSupply": "5",
    "liquidityEgld": None,
    "liquidityUsdc": None,
}


class Services(FakeRelayer):
    """A relayer, and an aggregator that knows one pair."""

    aggregator: str

    def __init__(self) -> None:
        super().__init__()
        self.changed_by_it: dict[str, Any] = {}
        """Fields of its transactions that it makes something else of."""
        self.quoted: dict[str, Any] = {}
        """Fields of its quotes that it makes something else of."""
        self.pair: dict[str, Any] = {"decimalsIn": 3, "decimalsOut": 2}
        self.on_chain: dict[str, int] = {}
        """Decimals of tokens, by the chain's gateway."""

    async def ask(self, request: web.Request) -> web.Response:
        match request.path:
            case "/api/v1/pair-config" if request.query["to"] == "B-2":
                return web.json_response({"from": "A-1", "to": "B-2", "supported": True} | self.pair)
            case "/api/v1/pair-config":
                return web.json_response({"from": "A-1", "to": "C", "supported": False, "error": "unknown tokenOut"})
            case "/api/v1/quote" if request.query.get("amountIn") == "9000":
                return web.json_response({"error": "simulation failed"}, status=400)
            case "/api/v1/quote":
                sender = request.query.get("sender", "")
                made = {
                    "sender": sender,
                    "receiver": PAYER,
                    "value": "0",
                    "version": 2,
                    "chainID": self.chain_of_transactions,
                }
                made |= {"gasLimit": 20_000_000, "gasPrice": 10**9, "data": b64encode(SWAP).decode()}
                return web.json_response(
                    QUOTE | self.quoted | ({"transaction": made | self.changed_by_it} if sender else {})
                )
            case "/vm-values/query":
                asked = await request.json()
                assert asked["funcName"] == "getTokenProperties"
                token = bytes.fromhex(asked["args"][0]).decode()
                said = [
                    b"Alpha",
                    b"FungibleESDT",
                    *([b"NumDecimals-%d" % n] if (n := self.on_chain.get(token)) is not None else []),
                ]
                return web.json_response(
                    {"data": {"data": {"returnData": [b64encode(item).decode() for item in said]}}}
                )
            case "/api/v1/tokens":
                return web.json_response({"tokens": [TOKEN], "total": 1, "offset": 0, "limit": 1, "snapshot": SNAPSHOT})
        return web.json_response({"pools": [POOL], "total": 1, "offset": 0, "limit": 1, "snapshot": SNAPSHOT})


@pytest.fixture
async def services() -> AsyncIterator[Services]:
    """Both, reached by the environment."""
    fake = Services()
    await fake.start()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", fake.ask)
    async with TestServer(app) as server:
        fake.aggregator = str(server.make_url("/"))
        yield fake
    await fake.stop()


async def run(services: Services, *arguments: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a command, on another thread."""
    env = _env(services)
    result = await asyncio.to_thread(CliRunner().invoke, main, list(arguments), env=env)
    return result.exit_code, result.stdout, result.stderr


def _env(services: Services) -> dict[str, str]:
    return {
        "MILLRACE_AGGREGATOR_URL": services.aggregator,
        "MILLRACE_RELAYER_URL": services.url,
        "MILLRACE_RELAYER_WS_URL": services.ws_url,
    }


async def test_a_quote(services: Services) -> None:
    """The route as a tree with share, exchange and amounts, the least, the gap; in a pipe without colours."""
    code, output, _ = await run(services, "quote", "A-1", "B-2", "1.5")
    assert code == 0
    for part in ("1.5 A-1 → 30 B-2", "100 %", "JEX  1.5 A-1 → 30 B-2", "29.7 B-2 (1 % slippage)", "0.05 % more"):
        assert part in output
    assert "\x1b" not in output
    assert (await run(services, "quote", "A-1", "A-1", "1.5"))[0] == 0  # arbitrage, in whole tokens as well
    code, output, _ = await run(services, "quote", "A-1", "B-2", "1.5", "--csv")
    assert output.splitlines()[1] == "A-1,B-2,1500,3000,2970,0.01,0.0005,20000000,7"
    assert (await run(services, "quote", "A-1", "B-2", "1.5", "--json"))[1].startswith('{"txData"')


async def test_a_quote_of_another_deployment(services: Services) -> None:
    """What the public interface promises is shown as far as it is told; a path of another form is left out."""
    for field in QUOTE.keys() - {"txData", "amountOutMin", "priceImpact", "paths"}:
        services.quoted[field] = None
    services.quoted["paths"] = [{"percent": 100}]
    code, output, errors = await run(services, "quote", "A-1", "B-2", "1.5")
    assert (code, errors) == (0, "")
    assert "1500 smallest units of A-1 → B-2" in output
    assert "2970 smallest units of B-2" in output


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("A-1", "C-3", "1"), 1, "unknown tokenOut"),
        (("A-1", "B-2", "9"), 1, "simulation failed"),
        (("A-1", "B-2", "1.0001"), 2, "at most 3 decimals"),
        (("A-1", "B-2", "-1"), 2, "No such option"),
        (("C-3", "C-3", "1"), 1, "unknown token C-3"),
        (("A-1", "B-2", "1", "--aggregator", "http://127.0.0.1:9"), 3, "cannot be reached"),
        (("A-1", "B-2", "1", "--aggregator", "file:///etc/passwd"), 1, "no address of a service"),
        (("A-1", "B-2", "1", "--aggregator", "http://[::1"), 1, "no address of a service"),
        (("A-1", "B-2", "1", "--aggregator", "http://a..b"), 1, "no address of a service"),
    ],
)
async def test_quotes_that_are_none(services: Services, arguments: tuple[str, ...], code: int, said: str) -> None:
    """Refused is 1, wrong use 2, not reached 3; the text says what to do and goes to standard error."""
    ended, output, errors = await run(services, "quote", *arguments)
    assert (ended, output) == (code, "")
    assert said in errors


async def test_tokens_and_pools(services: Services) -> None:
    """Tables for people, CSV for programs."""
    code, output, _ = await run(services, "tokens", "alp")
    assert code == 0 and "A-1" in output and "40" in output
    assert (await run(services, "tokens", "--csv"))[1].splitlines()[1] == "A-1,Alpha,3,False,1.0,40.0,200.0,2"
    code, output, _ = await run(services, "pools", "list")
    assert code == 0 and "A-1 / B-2" in output
    assert (await run(services, "pools", "list", "--csv"))[1].splitlines()[1].startswith("p:1,JEX,stable,erd1,A-1 B-2")


async def _swap(services: Services, folder: Path, *arguments: str) -> tuple[int, str, str]:
    (folder / "w.pem").write_text(Wallet(bytes(range(32))).to_pem())
    return await run(services, "swap", "A-1", "B-2", "1.5", "--key", str(folder / "w.pem"), *arguments)


def _told(services: Services, state: str) -> None:
    """The relayer accepts, and knows this state of whatever it accepted."""

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request.get("topic", "").startswith("tx-status/"):
            outcome = {"state": state, "reason": "execution failed", "fee": "5"}
            services.outcomes[request["topic"].removeprefix("tx-status/")] = outcome
        return usual(request) | ({"status": "ok"} if "topic" in request else {})

    services.answer = answer


async def test_a_swap_is_followed_to_its_end(services: Services, tmp_path: Path) -> None:
    """On a local chain it is sent, every state is a line, and success is 0, failure 1, and neither in time 4."""
    _told(services, "fail")
    swapping = asyncio.create_task(_swap(services, tmp_path))
    code, output, errors = await swapping
    assert code == 1 and "accepted as" in output and "fail: execution failed" in output
    assert "nothing was swapped" in errors
    _told(services, "success")
    code, output, _ = await _swap(services, tmp_path)
    assert code == 0 and "swapped for at least 2970 smallest units of B-2 = 29.7 (2 decimals" in output
    assert "pays 1500 smallest units of A-1 = 1.5 (3 decimals, by the aggregator's word alone)" in output
    _told(services, "pending")
    code, _, errors = await _swap(services, tmp_path, "--timeout", "1")
    assert code == 4 and "last known as pending" in errors


async def test_other_chains_are_not_touched(services: Services, tmp_path: Path) -> None:
    """Against another chain nothing is signed unless it is said; --dry-run sends nothing anywhere."""
    services.chain_of_transactions = "1"
    code, output, _ = await _swap(services, tmp_path)
    assert code == 0 and "dry run: chain 1" in output and f"to {PAYER} with 0 EGLD" in output
    services.chain_of_transactions = "local"
    code, output, _ = await _swap(services, tmp_path, "--dry-run")
    assert code == 0 and "dry run" in output
    assert services.requests == []


async def test_what_a_relayer_says_of_itself_does_not_count(services: Services, tmp_path: Path) -> None:
    """A relayer that calls its chain local gets no signature for another one, nor for what it made itself."""
    services.chain_of_transactions = "1"  # and /v1/relayers says `local`
    assert (await _swap(services, tmp_path))[0] == 0
    own = {
        "sender": Wallet(bytes(range(32))).address,
        "receiver": PAYER,
        "value": "0",
        "data": b64encode(SWAP).decode(),
    }
    own |= {"gasPrice": 10**9, "gasLimit": 20_000_000, "version": 2, "nonce": 3, "relayer": PAYER, "chainID": "local"}
    services.http = [web.json_response({"sponsored": True, "shard": 0, "transaction": own})]
    code, _, errors = await _swap(services, tmp_path)
    assert code == 1 and "nothing was signed: the relayer answered with another chainID" in errors
    services.chain_of_transactions = "local"
    services.http = [web.json_response({"sponsored": True, "shard": 0, "transaction": own | {"value": "5"}})]
    code, _, errors = await _swap(services, tmp_path, "--send")
    assert code == 1 and "the relayer answered with another value" in errors
    assert services.requests == []


async def test_what_an_aggregator_gives_is_compared(services: Services, tmp_path: Path) -> None:
    """A transaction that pays something else, or another contract than the one that was named, is not signed."""
    code, _, errors = await _swap(services, tmp_path, "--send", "--contract", Wallet(bytes(range(32))).address)
    assert code == 1 and "the aggregator answered with another transaction.receiver" in errors
    services.changed_by_it = {"value": "77"}
    code, _, errors = await _swap(services, tmp_path, "--send")
    assert code == 1 and "the aggregator answered with another transaction.value" in errors
    assert services.requests == []


AGREED = ("--send", "--at-least", "2970", "--units")


async def _elsewhere(services: Services, folder: Path, *arguments: str, amount: str = "1.5") -> tuple[int, str, str]:
    """A swap on another chain than a local one, with a gateway in this process."""
    services.chain_of_transactions = "1"
    (folder / "w.pem").write_text(Wallet(bytes(range(32))).to_pem())
    return await run(services, "swap", "A-1", "B-2", amount, "--key", str(folder / "w.pem"), *arguments)


async def test_an_aggregator_does_not_choose_how_much_is_signed(services: Services, tmp_path: Path) -> None:
    """Elsewhere than on a local chain nothing is signed by decimals that the aggregator alone says."""
    _told(services, "success")
    code, output, errors = await _elsewhere(services, tmp_path, "--send")
    assert code == 1 and "only the aggregator says that A-1 has 3 decimals" in errors
    assert "Say --gateway URL, --decimals N, or give amounts in smallest units with --units" in errors
    assert "pays 1500 smallest units of A-1" in output
    code, _, errors = await _elsewhere(services, tmp_path, "--send", "--decimals", "3", "--at-least", "29.7")
    assert code == 1 and "only the aggregator says that B-2 has 2 decimals" in errors and "how much is enough" in errors
    code, _, errors = await _elsewhere(services, tmp_path, "--send", "--decimals", "0")
    assert code == 1 and "by the aggregator A-1 has 3 decimals, by --decimals 0" in errors
    assert services.requests == []


async def test_a_liar_is_found_by_the_chain(services: Services, tmp_path: Path) -> None:
    """A gateway that says other decimals than the aggregator ends it, on every chain, for either token."""
    _told(services, "success")
    gateway = ("--gateway", services.aggregator)
    services.on_chain = {"A-1": 0, "B-2": 2}
    code, _, errors = await _elsewhere(services, tmp_path, *gateway)
    assert code == 1 and "by the aggregator A-1 has 3 decimals, by the chain 0" in errors
    services.on_chain = {"A-1": 3, "B-2": 5}
    code, _, errors = await _swap(services, tmp_path, *gateway)
    assert code == 1 and "by the aggregator B-2 has 2 decimals, by the chain 5" in errors
    services.on_chain = {"A-1": 3}
    code, _, errors = await _elsewhere(services, tmp_path, *gateway)
    assert code == 1 and "names no decimals of B-2" in errors
    assert services.requests == []


async def test_a_quote_that_was_cut_short(services: Services) -> None:
    """An aggregator that ran out of time says so, and a table does, too: a wide bound is no fault of the market."""
    assert "cut short" not in (await run(services, "quote", "A-1", "B-2", "1.5"))[1]
    services.quoted = {"searchCut": True}
    assert "cut short" in (await run(services, "quote", "A-1", "B-2", "1.5"))[1]


async def test_a_quote_in_another_scale_is_not_signed(services: Services, tmp_path: Path) -> None:
    """What is shown of the quote is in the scale that was looked at: a quote that has another one ends it."""
    services.quoted = {"decimalsOut": 0}
    code, _, errors = await _swap(services, tmp_path)
    assert code == 1 and "the quote says 0 decimals of B-2, not 2" in errors


async def test_the_least_is_agreed_to(services: Services, tmp_path: Path) -> None:
    """Elsewhere the least output is typed as well, or asked for at a terminal; below it nothing is signed."""
    _told(services, "success")
    services.on_chain = {"A-1": 3, "B-2": 2}
    gateway = ("--send", "--gateway", services.aggregator)
    code, _, errors = await _elsewhere(services, tmp_path, *gateway)
    assert code == 1 and "nobody agreed to as little as 2970 smallest units of B-2" in errors and "--at-least" in errors
    code, _, errors = await _elsewhere(services, tmp_path, *gateway, "--at-least", "29.71")
    assert code == 1 and "the least would be 2970 smallest units of B-2, not 2971" in errors
    assert services.requests == []
    code, output, _ = await _elsewhere(services, tmp_path, *gateway, "--at-least", "29.7")
    assert code == 0 and "gets at least 2970 smallest units of B-2 = 29.7 (2 decimals, by the chain)" in output
    assert (await _elsewhere(services, tmp_path, *AGREED, amount="1500"))[0] == 0


@pytest.mark.parametrize("decimals", [-1, 19, 10**9])
async def test_decimals_that_no_token_has(services: Services, decimals: int) -> None:
    """They neither scale an amount nor take all memory: the pair's end the verb, the quote's are not applied."""
    services.pair = {"decimalsIn": decimals, "decimalsOut": 2}
    code, _, errors = await run(services, "quote", "A-1", "B-2", "1")
    assert code == 1 and f"says {decimals} decimals" in errors
    services.pair, services.quoted = {"decimalsIn": 3, "decimalsOut": 2}, {"decimalsIn": decimals}
    code, output, _ = await run(services, "quote", "A-1", "B-2", "1.5")
    assert code == 0 and "1500 smallest units A-1 → 30 B-2" in output


async def test_egld_has_the_decimals_of_the_protocol(services: Services) -> None:
    """Nobody is believed who says that EGLD has others."""
    from millrace.cli.ask import Ended
    from millrace.cli.scales import scales_of

    services.pair = {"decimalsIn": 15, "decimalsOut": 2}
    with pytest.raises(Ended, match="by the aggregator EGLD has 15 decimals, by the protocol 18"):
        await asyncio.to_thread(scales_of, services.aggregator, "EGLD", "B-2", None, None)
    services.pair = {"decimalsIn": 18, "decimalsOut": 2}
    pays, gets = await asyncio.to_thread(scales_of, services.aggregator, "EGLD", "B-2", None, None)
    assert (pays.is_sure, gets.is_sure) == (True, False)


@pytest.mark.parametrize("verb", ["swap", "watch"])
async def test_an_interrupted_wait_is_no_success(services: Services, tmp_path: Path, verb: str) -> None:
    """Ctrl-C between acceptance and end is 4, with the hash to ask for."""
    _told(services, "pending")
    (tmp_path / "w.pem").write_text(Wallet(bytes(range(32))).to_pem())
    services.outcomes["aa" * 32] = {"state": "pending"}
    arguments = {
        "swap": ("swap", "A-1", "B-2", "1.5", "--key", str(tmp_path / "w.pem")),
        "watch": ("watch", "tx", "aa" * 32),
    }[verb]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "millrace", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PYTHONUNBUFFERED": "1", **_env(services)},
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(20):
            while not (await process.stdout.readline()).startswith(b"pending"):
                pass
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(20):
            _, errors = await process.communicate()
        assert process.returncode == 4 and b"`millrace watch tx " in errors
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("quote", "A-1", "B-2", "NaN"), "'NaN' is no amount"),
        (("quote", "A-1", "B-2", "0"), "no amount above zero"),
        (("quote", "A-1", "B-2", "1", "--slippage", "1%"), "'1%' is no fraction"),
        (("quote", "A-1", "B-2", "1", "--slippage", "1"), "'1' is no fraction"),
        (("quote", "A-1", "B-2", "1", "--sender", "erd1xx"), "'erd1xx' is not an address"),
        (("swap", "A-1", "B-2", "1e3", "--key", "w.pem"), "'1e3' is no amount"),
        (("swap", "A-1", "B-2", "1", "--key", "w.pem", "--at-least", "some"), "'some' is no amount"),
        (("swap", "A-1", "B-2", "1", "--key", "w.pem", "--slippage", "nan"), "'nan' is no fraction"),
        (("watch", "tx", "zz"), "'zz' is no hash of a transaction: 64 digits"),
        (("watch", "address", "erd1xx"), "'erd1xx' is not an address"),
        (("watch", "address", OWNER[:-1] + "q"), "its checksum is wrong"),
        (("watch", "events", "--address", "erd1xx"), "'erd1xx' is not an address"),
    ],
)
def test_words_are_looked_at_before_anybody_is_asked(arguments: tuple[str, ...], said: str) -> None:
    """Wrong use is 2 although no service is there, which would be 3; the word is named with what was expected."""
    nobody = dict.fromkeys(("MILLRACE_AGGREGATOR_URL", "MILLRACE_RELAYER_URL"), "http://127.0.0.1:9")
    result = CliRunner().invoke(main, list(arguments), env=nobody | {"MILLRACE_RELAYER_WS_URL": "ws://127.0.0.1:9/ws"})
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in " ".join(result.stderr.split())


async def test_a_transaction_is_watched(services: Services) -> None:
    """`watch tx` ends with the transaction: 0 for success, 1 for failure and for one nobody knows, 4 for no end."""
    for byte, state in (("aa", "success"), ("bb", "fail"), ("cc", "pending")):
        services.outcomes[32 * byte] = {"state": state}
    names = [32 * byte for byte in ("AA", "bb", "cc", "dd")]
    codes = [(await run(services, "watch", "tx", name, "--timeout", "0"))[0] for name in names]
    assert codes == [0, 1, 4, 1]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("gas",), "shard 0: p50 1,000,000,000 p90 3,000,000,000"),
        (("address", OWNER), "block 9  nonce 4  EGLD 7"),
    ],
)
async def test_a_stream_in_a_pipe(services: Services, arguments: tuple[str, ...], line: str) -> None:
    """In a pipe a stream is plain lines; Ctrl-C ends it with 0."""
    percentiles = {"p50": 10**9, "p75": 2 * 10**9, "p90": 3 * 10**9}
    gas = {"type": "gasStats", "data": {"shard": 0, "gasPrice": {"percentiles": percentiles}}}
    account = {"address": OWNER, "nonce": 4, "balances": {"EGLD": "7"}, "blockNonce": 9}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "millrace", "watch", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PYTHONUNBUFFERED": "1", **_env(services)},
    )
    try:
        await services.until(lambda: bool(services.topics()))
        await services.push(gas)
        await services.push({"type": "accountDelta", "data": account})
        assert process.stdout is not None
        async with asyncio.timeout(20):
            assert (await process.stdout.readline()).decode().strip() == line
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(20):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def test_amounts() -> None:
    """Amounts are exact in both directions, and never rounded to what was not typed."""
    assert to_units("1,234.5", 2) == 123_450
    assert units(10**20 + 1, 18) == "100.000000000000000001"
    assert [to_units(text, 6) for text in (".5", "1,234,567", "1_000.25")] == [
        500_000,
        1_234_567 * 10**6,
        1_000_250_000,
    ]
    for wrong in ("0", "-1", "1.001", "nan", "x", "inf", "1,5", "12,34", "1,2345", "1234,567", "1,000_000", "1e3", "."):
        with pytest.raises(click.BadParameter):
            to_units(wrong, 2)
    assert to_units("12345678901.123456789012345678", 18) == 12345678901123456789012345678
    assert to_units("123456789012345678901234567891", 0) == 123456789012345678901234567891
    for wrong, decimals in (("", 2), ("1.0", 0), ("1.0000000000000000001", 18), ("9" * 121, 0), ("\u0661", 0)):
        with pytest.raises(click.BadParameter):
            to_units(wrong, decimals)
    assert [number(value) for value in (None, 0, 1142890.0, 0.00012345678, 7)] == [
        "-",
        "0",
        "1,142,890",
        "0.000123457",
        "7",
    ]


def test_a_curve_of_letters() -> None:
    """The lowest value is the lowest letter, the highest the highest; a flat curve and none are no error."""
    from collections import deque

    assert sparkline(deque([1.0, 2.0, 3.0])) == "▁▄█"
    assert sparkline(deque([5.0, 5.0])) == "▁▁"
    assert sparkline(deque()) == ""
