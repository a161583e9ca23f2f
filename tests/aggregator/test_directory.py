"""Tokens, pools and prices as a wallet asks for them: one snapshot in all, pages that fit together."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from millrace.aggregator.catalogue import make
from millrace.aggregator.directory import Directory
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.snapshot import build
from millrace.dex.document import PoolDocument, TokenInfo, encode
from millrace.dex.rate import HatomStaking
from servers.aggregator_service import MARKET, Service
from synthetic import WRAPPED, make_market

USDC = "USDC-c76f1f"


async def pages(service: Service, path: str, kind: str, limit: int, **query: str) -> list[dict[str, Any]]:
    """All rows, page by page."""
    rows: list[dict[str, Any]] = []
    while True:
        status, body = await service.get(path, **query, limit=str(limit), offset=str(len(rows)))
        assert status == 200, body
        assert (body["limit"], body["offset"]) == (limit, len(rows))
        if not body[kind]:
            assert body["total"] == len(rows)
            return rows
        rows += body[kind]


async def test_every_token_is_listed_once(service: Service) -> None:
    """Page by page, those with most liquidity first; with prices, decimals, and how many pools trade it."""
    rows = await pages(service, "/api/v1/tokens", "tokens", 7)
    names = [row["identifier"] for row in rows]
    assert sorted(names) == sorted(["EGLD", *(info.identifier for info in MARKET.tokens)])
    liquidity = [row["liquidityEgld"] or 0.0 for row in rows]
    assert liquidity == sorted(liquidity, reverse=True)
    by_name = {row["identifier"]: row for row in rows}
    decimals = {info.identifier: info.decimals for info in MARKET.tokens} | {"EGLD": 18}
    assert {name: row["decimals"] for name, row in by_name.items()} == decimals
    assert by_name[WRAPPED]["priceEgld"] == by_name["EGLD"]["priceEgld"] == 1.0
    assert by_name[USDC]["priceUsdc"] == pytest.approx(1.0)
    assert by_name[WRAPPED]["priceUsdc"] == pytest.approx(40.0, rel=0.1)
    assert by_name[USDC]["pools"] == sum(USDC in pool.tokens for pool in MARKET.pools)
    held = sum(pool.reserves[pool.index(WRAPPED)] for pool in MARKET.pools if WRAPPED in pool.tokens)
    assert by_name[WRAPPED]["liquidityEgld"] == pytest.approx(held / 10**18)
    assert all(row["isLp"] is name.startswith("LP") for name, row in by_name.items())


@pytest.mark.parametrize("text", ["usdc", "USDC-c7", "c76F1f"])
async def test_tokens_are_found_by_a_part_of_their_names(service: Service, text: str) -> None:
    """In capitals or not."""
    _, body = await service.get("/api/v1/tokens", search=text)
    assert USDC in [row["identifier"] for row in body["tokens"]]
    assert body["total"] < len(MARKET.tokens)
    assert (await service.get("/api/v1/tokens", search="no such token"))[1]["tokens"] == []


async def test_every_pool_is_listed_once(service: Service) -> None:
    """All of them, or those of a token or exchange, whatever case its name is in."""
    rows = await pages(service, "/api/v1/pools", "pools", 13)
    assert sorted(row["id"] for row in rows) == sorted(pool.id for pool in MARKET.pools)
    mine = await pages(service, "/api/v1/pools", "pools", 1000, token="EGLD", exchange="XEXCHANGE,jex")
    wanted = {pool.id for pool in MARKET.pools if WRAPPED in pool.tokens and pool.exchange in ("XExchange", "Jex")}
    assert {row["id"] for row in mine} == wanted
    assert {row["dex"] for row in mine} == {"xExchange", "JEX"}
    pools = {pool.id: pool for pool in MARKET.pools}
    for row in rows:
        assert [int(reserve) for reserve in row["reserves"]] == list(pools[row["id"]].reserves)


async def test_prices_of_some_tokens_or_of_all(service: Service) -> None:
    """The same numbers as in the list of tokens."""
    _, some = await service.get("/api/v1/prices", tokens=f"EGLD,{USDC}")
    _, every = await service.get("/api/v1/prices")
    assert list(some["prices"]) == ["EGLD", USDC]
    assert (await service.get("/api/v1/prices", tokens=f" EGLD, {USDC} "))[1] == some
    assert some["prices"] == {name: every["prices"][name] for name in ("EGLD", USDC)}
    rows = await pages(service, "/api/v1/tokens", "tokens", 1000)
    assert every["prices"] == {r["identifier"]: {"egld": r["priceEgld"], "usdc": r["priceUsdc"]} for r in rows}


async def test_config_tells_what_a_client_need_not_guess(service: Service) -> None:
    """Contract, limits and defaults are those that requests are held to."""
    _, body = await service.get("/api/v1/config")
    settings = AggregatorSettings()
    assert body["contract"] == settings.contract
    assert body["wrappedNativeToken"] == WRAPPED
    assert body["defaults"]["includePaths"] is settings.include_paths
    hops = body["limits"]["maxHops"]
    question = {"from": "EGLD", "to": USDC, "amountIn": "1000000000000000"}
    assert (await service.get("/api/v1/quote", **question, maxHops=str(hops)))[0] == 200
    assert (await service.get("/api/v1/quote", **question, maxHops=str(hops + 1)))[0] == 400
    assert body["limits"]["maxBuiltinCalls"] == settings.max_builtin_calls


async def test_all_of_them_name_one_snapshot(service: Service) -> None:
    """The id is that of quotes, and follows the market."""
    paths = ("tokens", "pools", "prices", "config")
    before = (await service.get("/health"))[1]["snapshotId"]
    found = [(await service.get(f"/api/v1/{path}"))[1]["snapshot"]["id"] for path in paths]
    assert found == [before] * 4
    service.upstream.body = encode(make_market(60, seed=12))
    async with asyncio.timeout(20):
        while (await service.get("/health"))[1]["snapshotId"] == before:
            await asyncio.sleep(0.01)
    found = [(await service.get(f"/api/v1/{path}"))[1]["snapshot"]["id"] for path in paths]
    assert len(set(found)) == 1
    assert found[0] != before


async def test_the_catalogue_is_made_once_per_snapshot(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many ask at the same time, for whatever part of it."""
    made: list[str] = []
    make = Directory._made

    async def counted(self: Directory, snapshot: Any) -> Any:
        made.append(snapshot.id)
        return await make(self, snapshot)

    monkeypatch.setattr(Directory, "_made", counted)
    await asyncio.gather(*(service.get(f"/api/v1/{path}") for path in ("tokens", "pools", "prices") for _ in range(10)))
    assert len(made) == 1


@pytest.mark.parametrize(
    ("path", "query", "words"),
    [
        ("tokens", {"limit": "0"}, "invalid limit: expected an integer from 1 to 1000"),
        ("tokens", {"limit": "1001"}, "invalid limit"),
        ("tokens", {"offset": "-1"}, "invalid offset"),
        ("pools", {"token": "NOPE-123456"}, "unknown token 'NOPE-123456'"),
        ("pools", {"exchange": "uniswap"}, "invalid exchange: 'uniswap' is none of"),
        ("prices", {"tokens": "EGLD,NOPE-123456"}, "unknown token 'NOPE-123456'"),
        ("prices", {"tokens": ",".join(["EGLD"] * 101)}, "too many tokens: at most 100"),
    ],
)
async def test_bad_questions_are_told_what_is_wrong(
    service: Service, path: str, query: dict[str, str], words: str
) -> None:
    """A 400 with one field `error`."""
    status, body = await service.get(f"/api/v1/{path}", **query)
    assert (status, list(body)) == (400, ["error"])
    assert words in body["error"]


async def test_one_that_could_not_be_made_is_made_for_the_next(service: Service, monkeypatch: Any) -> None:
    """A failure is told to those who waited, and is not kept."""
    make = Directory._made

    async def broken(self: Directory, snapshot: Any, client: str) -> Any:
        raise msgspec.ValidationError("broken")

    monkeypatch.setattr(Directory, "_made", broken)
    assert (await service.get("/api/v1/tokens"))[0] == 500
    monkeypatch.setattr(Directory, "_made", make)
    assert (await service.get("/api/v1/tokens"))[0] == 200


def test_what_a_contract_at_a_rate_could_pay_is_no_liquidity() -> None:
    """Its reserves say how far its rate is trusted: neither the token nor the pool is shown to hold them."""
    held = WRAPPED, "SEGLD-3ad2d0"
    staking = HatomStaking(
        id="r:1:stake", address=bytes(32), tokens=held, reserves=(10**30, 10**30), rate=(99, 100), native=True
    )
    info = TokenInfo(identifier=held[1], decimals=18)
    document = msgspec.structs.replace(MARKET, pools=(*MARKET.pools, staking), tokens=(*MARKET.tokens, info))
    listed = [catalogue_of(each) for each in (MARKET, document)]
    tokens = [{row["identifier"]: row for row in rows} for rows, _ in listed]
    assert tokens[1][WRAPPED] == tokens[0][WRAPPED] | {"pools": tokens[0][WRAPPED]["pools"] + 1}
    assert (tokens[1][held[1]]["liquidityEgld"], tokens[1][held[1]]["priceEgld"]) == (0.0, pytest.approx(100 / 99))
    row = next(row for row in listed[1][1] if row["id"] == staking.id)
    assert (row["liquidityEgld"], row["liquidityUsdc"], row["tradable"]) == (None, None, True)


def catalogue_of(document: PoolDocument) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows of a document's tokens and pools."""
    making = make(build(encode(document), 0.0), USDC)
    while True:
        try:
            next(making)
        except StopIteration as made:
            rows = [row for _, row in made.value.tokens], [row for _, _, row in made.value.pools]
            return msgspec.json.decode(msgspec.json.encode(rows))
