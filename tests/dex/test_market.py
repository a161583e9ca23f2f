"""Where the contract finds pools."""

from typing import Any

from millrace.dex.constant_product import JexPool, OneDexPool, XExchangePool
from millrace.dex.market import DictMarket
from millrace.dex.pool import Pool

WEGLD, USDC, MEX = "WEGLD-bd4d79", "USDC-c76f1f", "MEX-455c57"
ROUTER = bytes(31) + b"\xff"


def pools() -> dict[str, Pool]:
    common: dict[str, Any] = {"reserves": (10**20, 10**20), "lp_supply": 10**20}
    fees: dict[str, Any] = {"total_fee": 100, "special_fee": 50}
    return {
        "x": XExchangePool(
            id="x", address=bytes(31) + b"\x01", tokens=(WEGLD, USDC), lp_token="LPX-000001", **common, **fees
        ),
        "o": OneDexPool(
            id="o",
            address=ROUTER,
            tokens=(MEX, USDC),
            lp_token="LPO-000002",
            pair_id=9,
            staking_fee=0,
            main=(False, True),
            **common,
            **fees,
        ),
        "j": JexPool(id="j", address=bytes(31) + b"\x03", tokens=(USDC, WEGLD), lp_fee=20, platform_fee=20, **common),
    }


def market() -> DictMarket:
    return DictMarket(pools().values(), WEGLD)


def test_pools_are_found_as_the_contract_finds_them() -> None:
    """xExchange by pair in either order or address, OneDex by pair, id or LP token, the rest by address."""
    book, known = market(), pools()
    assert book.xexchange(USDC, WEGLD) == book.xexchange(WEGLD, USDC) == book.at(known["x"].address) == known["x"]
    assert book.onedex(MEX, USDC) == book.onedex_pair(9) == book.onedex_lp("LPO-000002") == known["o"]
    assert book.at(known["j"].address) == known["j"]
    assert book.at(ROUTER) is None
    assert book.xexchange(USDC, MEX) is book.onedex_pair(1) is book.onedex_lp("LPX-000001") is None


def test_of_two_equal_pairs_only_the_first_is_reached() -> None:
    """Routers know one pair per two tokens; the other one is there but nobody gets to it."""
    first = pools()["x"]
    second = XExchangePool(
        id="x2", address=bytes(31) + b"\x09", tokens=(USDC, WEGLD), reserves=(1, 1), total_fee=300, special_fee=50
    )
    crowded = DictMarket([first, second], WEGLD)
    assert crowded.xexchange(WEGLD, USDC) == first
    assert crowded.at(second.address) == second
    assert crowded.reaches(first)
    assert not crowded.reaches(second)


def test_pairs_without_an_lp_token_do_not_stand_before_each_other() -> None:
    """Other tokens, another number, and none issued: each is reached, and none of them by an LP token."""
    common: dict[str, Any] = {"address": ROUTER, "reserves": (10**20, 10**20), "staking_fee": 0, "main": (False, True)}
    fees: dict[str, Any] = {"total_fee": 100, "special_fee": 50}
    pairs = [
        OneDexPool(id=f"o{number}", tokens=(token, USDC), pair_id=number, **common, **fees)
        for number, token in enumerate((MEX, WEGLD), 1)
    ]
    book = DictMarket(pairs, WEGLD)
    assert [book.reaches(pair) for pair in pairs] == [True, True]
    assert book.onedex_lp("") is None


def test_updates_replace_by_id() -> None:
    """After an update every way to a pool leads to its new state."""
    book = market()
    moved = pools()["x"].swap(0, 1, 10**18).pool
    book.update({"x": moved})
    assert book.xexchange(WEGLD, USDC) == book.at(moved.address) == book.pools["x"] == moved
