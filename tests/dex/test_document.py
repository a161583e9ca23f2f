"""The pool document: every kind of pool there and back, every fault named, nothing that crashes."""

import json
import sys
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.chain import address
from millrace.dex import document
from millrace.dex.constant_product import FeeDestination, JexPool, OneDexPool, TrustedPair, XExchangePool
from millrace.dex.crypto import AshCryptoPool
from millrace.dex.document import DocumentError, PoolDocument, decode, encode, pools
from millrace.dex.entries import MAX_FEE_ENTRIES, Reader
from millrace.dex.pool import PoolState
from millrace.dex.stable import AshStablePool, JexStablePool

ROUTER = address.encode(bytes(8) + b"\x05" + bytes(22) + b"\x07")
NOBODY = address.encode(address.ZERO)


def contract(k: int) -> str:
    return address.encode(bytes(8) + k.to_bytes(24, "big"))


def entry(k: int, exchange: str, kind: str, **fields: Any) -> dict[str, Any]:
    common = {
        "id": f"p{k}",
        "exchange": exchange,
        "kind": kind,
        "address": contract(k),
        "state": "active",
        "tokens": ["WEGLD-bd4d79", "USDC-c76f1f"],
        "reserves": ["81478482319716395147753", "4878990096191"],
        "lpToken": f"LPTOKEN-{k:06x}",
        "lpDecimals": 18,
        "lpSupply": "9390873908175",
    }
    return common | fields


def sample() -> dict[str, Any]:
    """One pool of each kind."""
    return {
        "version": 1,
        "block": {"round": 21_000_000, "nonce": 20_990_000, "timestamp": 1_730_000_000},
        "nativeToken": "EGLD",
        "wrappedNativeToken": "WEGLD-bd4d79",
        "tokens": [
            {"identifier": "WEGLD-bd4d79", "decimals": 18, "name": "WrappedEGLD", "ticker": "WEGLD", "isLp": False},
            {"identifier": "USDC-c76f1f", "decimals": 6},
            {"identifier": "USDT-f8c08c", "decimals": 6},
            {"identifier": "LPTOKEN-000000", "decimals": 18, "isLp": True, "lpOf": "p0"},
        ],
        "exchanges": {
            "OneDex": {"router": ROUTER, "mainPairTokens": ["WEGLD-bd4d79", "USDC-c76f1f"]},
            "XExchange": {"router": ROUTER},
        },
        "pools": [
            entry(
                0,
                "XExchange",
                "constant_product",
                totalFee="300",
                specialFee="50",
                feeBase="100000",
                feeEnabled=True,
                feesCollector=contract(90),
                feesCollectorCut="50000",
                feeDestinations=[{"address": NOBODY, "token": "MEX-455c57"}],
                trustedPairs=[{"tokens": ["MEX-455c57", "WEGLD-bd4d79"], "address": contract(91)}],
            ),
            entry(
                1,
                "OneDex",
                "constant_product",
                tokens=["USDT-f8c08c", "WEGLD-bd4d79"],
                pairId=9,
                enabled=True,
                totalFee="100",
                specialFee="30",
                stakingFee="20",
                feeBase="10000",
            ),
            entry(2, "Jex", "constant_product", lpFee="20", platformFee="20", feeBase="10000", state="noSwaps"),
            entry(
                3,
                "AshSwap",
                "stable",
                tokens=["USDC-c76f1f", "USDT-f8c08c"],
                amp="256",
                swapFee="50",
                adminFee="50000",
                feeBase="100000",
                underlyingPrices=["1000000000000000000", "1000000000000000001"],
                poolType="meta",
            ),
            entry(
                4,
                "Jex",
                "stable",
                tokens=["USDC-c76f1f", "USDT-f8c08c", "WEGLD-bd4d79"],
                reserves=["1", "2", "3"],
                amp="256",
                swapFee="500",
                liquidityFee="187",
                feeBase="1000000",
                platformShare={"num": "33", "den": "100"},
                restricted=True,
            ),
            entry(
                5,
                "AshSwap",
                "crypto",
                a="400000",
                gamma="145000000000000",
                d="14713381882176947720176",
                priceScale=["758700083236071"],
                midFee="20000000",
                outFee="40000000",
                feeGamma="230000000000000",
                adminFee="5000000000",
                feeBase="10000000000",
                futureAGammaTime="0",
            ),
        ],
    }


def data(changed: dict[str, Any]) -> bytes:
    return json.dumps(changed).encode()


def test_every_kind_becomes_its_pool() -> None:
    """Each entry becomes the pool of its exchange and kind, with its own numbers."""
    xexchange, onedex, jex, ash, stable, crypto = pools(decode(data(sample())))
    assert isinstance(xexchange, XExchangePool)
    assert xexchange.reserves == (81478482319716395147753, 4878990096191)
    assert (xexchange.total_fee, xexchange.special_fee, xexchange.lp_supply) == (300, 50, 9390873908175)
    assert (xexchange.fees_collector, xexchange.fees_collector_cut) == (bytes(31) + b"\x5a", 50_000)
    assert (xexchange.fee_destinations, xexchange.trusted_pairs) == ((BURN_MEX,), (OUTLET,))
    assert isinstance(onedex, OneDexPool)
    assert (onedex.pair_id, onedex.main) == (9, (False, True))
    assert isinstance(jex, JexPool)
    assert jex.state == PoolState.NO_SWAPS
    assert not jex.token_id_keys
    assert isinstance(ash, AshStablePool)
    assert (ash.decimals, ash.prices, ash.pool_type) == ((6, 6), (10**18, 10**18 + 1), "meta")
    assert isinstance(stable, JexStablePool)
    assert (stable.restricted, stable.liquidity_fee, stable.prices) == (True, 187, (10**18,) * 3)
    assert isinstance(crypto, AshCryptoPool)
    assert (crypto.decimals, crypto.price_scale, crypto.ramping) == ((18, 6), 758700083236071, False)


@pytest.mark.parametrize("seen", [False, True])
def test_where_a_jex_pair_stores_its_tokens_survives_the_round_trip(seen: bool) -> None:
    """What the collector saw is what the aggregator reads."""
    document = sample()
    document["pools"][2]["tokenIdKeys"] = seen
    once = decode(data(document))
    again = decode(encode(once))
    assert [pool.token_id_keys for pool in (*pools(once), *pools(again)) if isinstance(pool, JexPool)] == [seen, seen]


def test_a_document_survives_the_round_trip() -> None:
    """Encoding what was decoded and decoding it again changes nothing, and the bytes are stable."""
    first = decode(data(sample()))
    again = encode(first)
    assert decode(again) == first
    assert encode(decode(again)) == again
    assert first.onedex_router == address.decode(ROUTER)


BURN_HERE = FeeDestination(address.ZERO, "USDC-c76f1f")
BURN_MEX = FeeDestination(address.ZERO, "MEX-455c57")
OUTLET = TrustedPair(("MEX-455c57", "WEGLD-bd4d79"), bytes(31) + b"\x5b")
SETUPS: dict[str, dict[str, Any]] = {
    "not known": {"fees_collector": None, "fees_collector_cut": 0, "fee_destinations": None, "trusted_pairs": None},
    "off": {"fee_enabled": False, "fees_collector": b"", "fee_destinations": (), "trusted_pairs": ()},
    "collector": {"fees_collector_cut": 100_000, "fee_destinations": (), "trusted_pairs": ()},
    "sold here": {"fee_destinations": (BURN_HERE,), "trusted_pairs": ()},
    "sold elsewhere": {"fee_destinations": (BURN_MEX, BURN_HERE), "trusted_pairs": (OUTLET,)},
    "pairs not known": {"fee_destinations": (BURN_MEX,), "trusted_pairs": None},
    "no collector": {"fees_collector": b"", "fees_collector_cut": 0, "fee_destinations": (BURN_HERE,)},
    "many": {"fee_destinations": (BURN_MEX,) * MAX_FEE_ENTRIES, "trusted_pairs": (OUTLET,) * MAX_FEE_ENTRIES},
}


@pytest.mark.parametrize("setup", SETUPS.values(), ids=SETUPS.keys())
def test_where_a_fee_goes_survives_the_round_trip(setup: dict[str, Any]) -> None:
    """Whatever a pair does with its special fee, and whatever is not known of it, the document says so."""
    first = decode(data(sample()))
    changed = msgspec.structs.replace(first, pools=(msgspec.structs.replace(first.pools[0], **setup), *first.pools[1:]))
    again = decode(encode(changed))
    assert again == changed
    assert encode(again) == encode(changed)


FEE_FIELDS = {
    "feesCollector": "fees_collector",
    "feeDestinations": "fee_destinations",
    "trustedPairs": "trusted_pairs",
}


@pytest.mark.parametrize(("field", "attribute"), FEE_FIELDS.items())
def test_what_is_not_known_is_not_nothing(field: str, attribute: str) -> None:
    """A field that is missing or null is not known; an empty text or list says that there is none."""

    def told(**change: Any) -> Any:
        changed = sample()
        changed["pools"][0].pop(field)
        changed["pools"][0] |= change
        return getattr(decode(data(changed)).pools[0], attribute)

    assert told() is None
    assert told(**{field: None}) is None
    nothing, none = ("", b"") if field == "feesCollector" else ([], ())
    assert told(**{field: nothing}) == none


def test_integers_may_come_as_json_numbers() -> None:
    """Amounts and rates as JSON integers mean the same as decimal strings."""
    changed = sample()
    changed["pools"][0] |= {"reserves": [81478482319716395147753, 4878990096191], "totalFee": 300}
    assert decode(data(changed)) == decode(data(sample()))


def test_defaults_and_unknown_fields() -> None:
    """What has a usual value may be missing, and fields of a newer writer are left alone."""
    changed = sample()
    changed["future"] = {"x": 1}
    for pool in changed["pools"]:
        pool["blockNonce"] = 5
        for field in ("feeBase", "state", "lpDecimals", "adminFee", "poolType", "platformShare", "liquidityFee"):
            if field != "adminFee" or pool["kind"] == "crypto":
                pool.pop(field, None)
    built = pools(decode(data(changed)))
    assert [pool.state for pool in built] == [PoolState.ACTIVE] * 6
    assert isinstance(built[4], JexStablePool)
    assert (built[4].liquidity_fee, built[4].platform_share) == (500 * 3 // 8, (33, 100))


def burned(token: str) -> list[dict[str, str]]:
    return [{"address": NOBODY, "token": token}]


def test_more_of_a_fees_ways_than_are_taken_are_not_known() -> None:
    """With 64 destinations or pairs a document says where the fee goes, with 65 of either it is read all the same."""
    for count, known in ((MAX_FEE_ENTRIES, True), (MAX_FEE_ENTRIES + 1, False)):
        changed = sample()
        entry = changed["pools"][0]
        entry.update(feeDestinations=burned("USDC-c76f1f") * count, trustedPairs=entry["trustedPairs"] * count)
        pool = decode(data(changed)).pools[0]
        assert isinstance(pool, XExchangePool)
        assert ((pool.fee_destinations is not None), (pool.trusted_pairs is not None)) == (known, known)


def test_a_collector_without_its_cut_is_not_known() -> None:
    """Nothing would look cheap, so the dear case is assumed."""
    changed = sample()
    changed["pools"][0].pop("feesCollectorCut")
    pool = decode(data(changed)).pools[0]
    assert isinstance(pool, XExchangePool)
    assert pool.fees_collector is None
    assert pool.fee_use is None


FAULTS = [
    ("$.version", lambda d: d.update(version=2)),
    ("$", lambda d: d.pop("block")),
    ("$.block.nonce", lambda d: d["block"].update(nonce="5")),
    ("$.block.nonce", lambda d: d["block"].update(nonce=-1)),
    ("$.block.round", lambda d: d["block"].update(round=1 << 53)),
    ("$.block.timestamp", lambda d: d["block"].update(timestamp=10**30)),
    ("$.wrappedNativeToken", lambda d: d.update(wrappedNativeToken="WEGLD-000000")),
    ("$.tokens[0].identifier", lambda d: d["tokens"][0].update(identifier="wegld")),
    ("$.tokens[2].identifier", lambda d: d["tokens"][2].update(identifier="USDC-c76f1f", decimals=7)),
    ("$.tokens[1].decimals", lambda d: d["tokens"][1].update(decimals=19)),
    ("$.tokens[1].decimals", lambda d: d["tokens"][1].update(decimals=-1)),
    ("$.exchanges.OneDex", lambda d: d["exchanges"].pop("OneDex")),
    ("$.exchanges.OneDex.router", lambda d: d["exchanges"]["OneDex"].update(router="erd1x")),
    ("$.pools", lambda d: d.update(pools={})),
    ("$.pools[0]", lambda d: d["pools"][0].update(exchange="Uniswap")),
    ("$.pools[0]", lambda d: d["pools"][0].update(kind="weighted")),
    ("$.pools[0].id", lambda d: d["pools"][0].update(id="")),
    ("$.pools[1].id", lambda d: d["pools"][1].update(id="p0")),
    ("$.pools[1].lpToken", lambda d: d["pools"][1].update(lpToken="LPTOKEN-000000")),
    ("$.pools[2].address", lambda d: d["pools"][2].update(address=contract(0))),
    ("$.pools[0].address", lambda d: d["pools"][0].update(address=contract(0)[:-1])),
    ("$.pools[0].tokens", lambda d: d["pools"][0].update(tokens=["WEGLD-bd4d79", "NOPE-000000"])),
    ("$.pools[0].tokens", lambda d: d["pools"][0].update(tokens=["WEGLD-bd4d79"] * 2)),
    ("$.pools[0].tokens", lambda d: d["pools"][0].update(tokens=["WEGLD-bd4d79"])),
    ("$.pools[0].lpToken", lambda d: d["pools"][0].update(lpToken="USDC-c76f1f")),
    ("$.pools[0].lpToken", lambda d: d["pools"][0].update(lpToken="no identifier")),
    ("$.pools[0].reserves", lambda d: d["pools"][0].update(reserves=["1"])),
    ("$.pools[0].reserves[1]", lambda d: d["pools"][0].update(reserves=["1", "0"])),
    ("$.pools[0].reserves[0]", lambda d: d["pools"][0].update(reserves=["-1", "1"])),
    ("$.pools[0].reserves[0]", lambda d: d["pools"][0].update(reserves=["1.5", "1"])),
    ("$.pools[0].reserves[0]", lambda d: d["pools"][0].update(reserves=["1e18", "1"])),
    ("$.pools[0].reserves[0]", lambda d: d["pools"][0].update(reserves=["٣", "1"])),
    ("$.pools[0].reserves[0]", lambda d: d["pools"][0].update(reserves=["9" * 79, "1"])),
    ("$.pools[0].reserves[0]", lambda d: d["pools"][0].update(reserves=[1.5, "1"])),
    ("$.pools[0].reserves[0]", lambda d: d["pools"][0].update(reserves=[True, "1"])),
    ("$.pools[0].lpSupply", lambda d: d["pools"][0].update(lpSupply="")),
    ("$.pools[0].lpDecimals", lambda d: d["pools"][0].update(lpDecimals=255)),
    ("$.pools[0].state", lambda d: d["pools"][0].update(state="open")),
    ("$.pools[0].feeBase", lambda d: d["pools"][0].update(totalFee="100000")),
    ("$.pools[0].feeBase", lambda d: d["pools"][0].update(feeBase="0")),
    ("$.pools[0].feeBase", lambda d: d["pools"][0].update(totalFee=str(10**20 - 1), feeBase=str(10**20))),
    ("$.pools[1].feeBase", lambda d: d["pools"][1].update(totalFee=str(10**20 - 1), feeBase=str(10**20))),
    ("$.pools[2].feeBase", lambda d: d["pools"][2].update(lpFee=str(10**20 - 2), platformFee="1", feeBase=str(10**20))),
    ("$.pools[0].specialFee", lambda d: d["pools"][0].update(specialFee="301")),
    ("$.pools[0].feesCollectorCut", lambda d: d["pools"][0].update(feesCollectorCut="100001")),
    ("$.pools[0].feesCollector", lambda d: d["pools"][0].update(feesCollector=contract(0)[:-1])),
    ("$.pools[0].feesCollector", lambda d: d["pools"][0].update(feesCollector="0" * 64)),
    ("$.pools[0].feesCollector", lambda d: d["pools"][0].update(feesCollector=5)),
    ("$.pools[0].feeDestinations[1].token", lambda d: d["pools"][0]["feeDestinations"].extend(burned("usdc"))),
    ("$.pools[0].feeDestinations[0].token", lambda d: d["pools"][0].update(feeDestinations=burned("EGLD"))),
    ("$.pools[0].feeDestinations[0].address", lambda d: d["pools"][0]["feeDestinations"][0].update(address="")),
    ("$.pools[0].feeDestinations[0]", lambda d: d["pools"][0]["feeDestinations"][0].pop("address")),
    ("$.pools[0].feeDestinations", lambda d: d["pools"][0].update(feeDestinations={})),
    ("$.pools[0].trustedPairs[0].tokens", lambda d: d["pools"][0]["trustedPairs"][0].update(tokens=["MEX", ""])),
    ("$.pools[0].trustedPairs[0].tokens", lambda d: d["pools"][0]["trustedPairs"][0].update(tokens=["MEX-455c57"])),
    ("$.pools[0].trustedPairs[0].address", lambda d: d["pools"][0]["trustedPairs"][0].update(address="erd1x")),
    ("$.pools[0].trustedPairs[0]", lambda d: d["pools"][0].update(trustedPairs=[ROUTER])),
    ("$.pools[0]", lambda d: d["pools"][0].pop("totalFee")),
    ("$.pools[1].stakingFee", lambda d: d["pools"][1].update(stakingFee="71")),
    ("$.pools[1].feeBase", lambda d: d["pools"][1].update(feeBase="100")),
    ("$.pools[1].pairId", lambda d: d["pools"][1].update(pairId=1 << 16)),
    ("$.pools[1].pairId", lambda d: d["pools"][1].update(pairId="9" * 78)),
    ("$.pools[2].feeBase", lambda d: d["pools"][2].update(lpFee="9980")),
    ("$.pools[3].amp", lambda d: d["pools"][3].update(amp="0")),
    ("$.pools[3].adminFee", lambda d: d["pools"][3].update(adminFee="100001")),
    ("$.pools[3].underlyingPrices", lambda d: d["pools"][3].update(underlyingPrices=["1"])),
    ("$.pools[3].underlyingPrices[1]", lambda d: d["pools"][3].update(underlyingPrices=["1", "0"])),
    ("$.pools[4].platformShare.den", lambda d: d["pools"][4].update(platformShare={"num": "3", "den": "2"})),
    ("$.pools[4].feeBase", lambda d: d["pools"][4].update(liquidityFee="1000000")),
    ("$.pools[5].priceScale", lambda d: d["pools"][5].update(priceScale=["1", "1"])),
    ("$.pools[5].gamma", lambda d: d["pools"][5].update(gamma="0")),
    ("$.pools[5].d", lambda d: d["pools"][5].update(d="0")),
    ("$.pools[5].feeBase", lambda d: d["pools"][5].update(outFee="10000000000")),
]


@pytest.mark.parametrize(("path", "change"), FAULTS)
def test_faults_are_named(path: str, change: Any) -> None:
    """One fault anywhere refuses the whole document; the message starts with the path."""
    changed = sample()
    change(changed)
    with pytest.raises(DocumentError) as caught:
        decode(data(changed))
    assert str(caught.value).startswith(f"{path}:"), str(caught.value)
    assert str(caught.value) == read(reader_of(sample()), changed)


def reader_of(earlier: dict[str, Any]) -> Reader:
    """A reader that has read a document."""
    reader = Reader()
    decode(data(earlier), reader=reader)
    return reader


def read(reader: Reader | None, changed: dict[str, Any]) -> PoolDocument | str:
    """A document, or what is wrong with it."""
    try:
        return decode(data(changed), reader=reader)
    except DocumentError as error:
        return str(error)


MOVES = {
    "reserves": lambda d: d["pools"][1].update(reserves=["5", 7]),
    "LP units": lambda d: d["pools"][3].update(lpSupply="1"),
    "all reserves": lambda d: [pool.update(reserves=["9"] * len(pool["tokens"])) for pool in d["pools"]],
    "a fee": lambda d: d["pools"][0].update(totalFee="301"),
    "a fee's collector": lambda d: d["pools"][0].update(feesCollector=""),
    "a fee's destinations": lambda d: d["pools"][0].update(feeDestinations=None),
    "a trusted pair": lambda d: d["pools"][0]["trustedPairs"][0].update(address=contract(92)),
    "a scale": lambda d: d["pools"][5].update(reserves=["8", "9"], priceScale=["758700083236072"]),
    "a main pair token": lambda d: d["exchanges"]["OneDex"].update(mainPairTokens=["USDT-f8c08c"]),
    "decimals": lambda d: d["tokens"][1].update(decimals=7),
    "a token": lambda d: d["tokens"].append({"identifier": "NEW-00000a", "decimals": 3}),
    "an exchange": lambda d: d["pools"][2].update(exchange="XExchange", totalFee="300", specialFee="50"),
    "one pool less": lambda d: d["pools"].pop(2),
    "another order": lambda d: d["pools"].reverse(),
    "the block": lambda d: d["block"].update(nonce=1),
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES.keys())
def test_a_reader_forgets_nothing_and_keeps_nothing_too_long(move: Any) -> None:
    """Whatever changes from one document to the next and back, a reader gives what one without memory gives."""
    changed, reader = sample(), reader_of(sample())
    move(changed)
    for now in (changed, sample(), sample(), changed):
        assert read(reader, now) == read(None, now)


def test_a_reader_gives_the_very_pools_that_have_not_changed() -> None:
    """A pool whose entry is as it was is the same object; others, and all if the tokens have changed, are not."""
    reader = Reader()
    before = decode(data(sample()), reader=reader).pools
    changed = sample()
    changed["pools"][1]["reserves"] = ["5", "7"]
    after = decode(data(changed), reader=reader).pools
    assert [a is b for a, b in zip(before, after, strict=True)] == [True, False, True, True, True, True]
    changed["tokens"][1]["decimals"] = 7
    third = decode(data(changed), reader=reader).pools
    assert not any(a is b for a, b in zip(after, third, strict=True))


def test_a_reader_survives_a_document_that_is_refused() -> None:
    """A fault in one document does not show in the next one."""
    reader, broken = reader_of(sample()), sample()
    broken["pools"][4]["reserves"] = ["1", "0", "2"]
    assert read(reader, broken) == "$.pools[4].reserves[1]: 0 is less than 1"
    assert read(reader, sample()) == read(None, sample())


def test_a_reader_keeps_one_document() -> None:
    """The bytes of the document before the last are let go, although most of its pools are still there."""
    reader, earlier = Reader(), data(sample())
    unheld = sys.getrefcount(earlier)
    decode(earlier, reader=reader)
    assert sys.getrefcount(earlier) > unheld
    decode(data(sample()), reader=reader)
    assert sys.getrefcount(earlier) == unheld


def test_one_contract_holds_all_onedex_pairs() -> None:
    """OneDex pools share an address; a doubled pair id is a fault."""
    changed = sample()
    second = entry(7, "OneDex", "constant_product", pairId=10, totalFee=40, specialFee=20, stakingFee=0)
    changed["pools"].append(second | {"address": contract(1)})
    assert len(pools(decode(data(changed)))) == 7
    changed["pools"][-1]["pairId"] = 9
    with pytest.raises(DocumentError, match=r"\$\.pools\[6\]\.pairId"):
        decode(data(changed))


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b'{"version": NaN}',
        b'{"version": Infinity}',
        b"\xff\xfe",
        b'{"version": 1, "block": "\xff"}',
        b"[" * 100_000,
        b'{"pools":' * 50_000,
        b'{"version": 1' + b"0" * 10_000 + b"}",
        b'{"version": 1e400}',
        json.dumps(sample()).encode()[:-2],
        json.dumps(sample()).encode() + b"x",
    ],
    ids=lambda bad: bad[:20].decode("latin-1") + f"...{len(bad)}",
)
def test_broken_json_is_refused(bad: bytes) -> None:
    """Truncated, doubled, deeply nested, non-UTF-8 and non-finite input is a `DocumentError`."""
    with pytest.raises(DocumentError):
        decode(bad)


def test_deep_nesting_inside_an_unknown_field() -> None:
    """Nesting in a field that is skipped is refused or skipped, never a crash."""
    deep = data(sample())[:-1] + b', "x": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    with pytest.raises(DocumentError):
        decode(deep)


def test_too_large_is_refused_before_parsing() -> None:
    """The size limit comes first and is the caller's to set."""
    with pytest.raises(DocumentError, match="at most 10 are taken"):
        decode(data(sample()), max_bytes=10)


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_any_damage_is_a_document_error(choose: st.DataObject) -> None:
    """Replacing any value by any JSON value leaves a document or a `DocumentError`."""
    changed = sample()
    place: Any = changed
    while True:
        key = choose.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        inner = place[key]
        if not isinstance(inner, dict | list) or not inner or choose.draw(st.booleans()):
            break
        place = inner
    place[key] = choose.draw(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
            lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=5), inside, max_size=3),
            max_leaves=5,
        )
    )
    decoded = read(None, changed)
    assert decoded == read(reader_of(sample()), changed)
    if isinstance(decoded, str):
        assert decoded.startswith("$")
    else:
        assert decode(encode(decoded)) == decoded


@given(st.binary(max_size=200))
@settings(max_examples=100, deadline=None)
def test_any_bytes_are_a_document_error(noise: bytes) -> None:
    """Noise is refused."""
    with pytest.raises(DocumentError):
        decode(noise)


def test_a_thousand_pools_are_quick() -> None:
    """A document of the size of the real market decodes well within a refresh; the bound is generous."""
    changed = sample()
    changed["tokens"][3]["lpOf"] = "q0"
    template = changed["pools"]
    changed["pools"] = [
        template[k % 6]
        | {"id": f"q{k}", "lpToken": f"LPTOKEN-{k:06x}", "address": contract(k)}
        | ({"pairId": k} if k % 6 == 1 else {})
        for k in range(1000)
    ]
    raw = data(changed)
    decode(raw)
    start = time.perf_counter()
    assert len(decode(raw).pools) == 1000
    assert time.perf_counter() - start < 2.0


def test_documents_are_built_from_pools() -> None:
    """A market that holds pools writes its document without detours."""
    first = decode(data(sample()))
    changed = msgspec.structs.replace(first, pools=(first.pools[0].swap(0, 1, 10**18).pool,))
    again = document.decode(encode(changed))
    assert again.pools[0].reserves[0] > first.pools[0].reserves[0]


# Quarantine.


def broken(fault: str) -> dict[str, Any]:
    """The sample with one fault in one entry."""
    content = sample()
    pool = content["pools"][0]
    if fault == "a reserve of zero":
        pool["reserves"][0] = "0"
    elif fault == "an inactive pool without reserves":
        pool["state"], pool["reserves"] = "inactive", ["0", "0"]
    elif fault == "an unknown kind":
        pool["kind"] = "weighted"
    elif fault == "an unknown exchange":
        pool["exchange"] = "Somewhere"
    elif fault == "an odd token":
        pool["tokens"][0] = "NOPE"
    elif fault == "a missing field":
        del pool["reserves"]
    elif fault == "a wrong type":
        pool["reserves"] = "many"
    elif fault == "no name":
        del pool["id"]
    elif fault == "fees of everything":
        pool["totalFee"] = pool["feeBase"] = "100"
    elif fault == "no object":
        content["pools"][0] = 7
    return content


FAULTS = (
    "a reserve of zero", "an inactive pool without reserves", "an unknown kind", "an unknown exchange", "an odd token",
    "a missing field", "a wrong type", "no name", "fees of everything", "no object",
)  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_one_faulty_pool_is_left_out_and_named(fault: str) -> None:
    """A fault of one pool costs that pool: all others are there, and it is named with the reason."""
    content = broken(fault)
    raw = msgspec.json.encode(content)
    whole = decode(msgspec.json.encode(sample()))
    with pytest.raises(DocumentError) as refused:
        decode(raw)
    found = decode(raw, quarantine=True)
    assert found.pools == whole.pools[1:]
    (left_out,) = found.quarantined
    assert left_out.name == ("#0" if fault in ("no name", "no object") else "p0")
    assert left_out.reason == str(refused.value)


def test_a_faulty_entry_is_read_again_only_when_it_changes() -> None:
    """What was wrong stays out while it is the same, and comes back when it is mended."""
    reader = Reader()
    bad, good = msgspec.json.encode(broken("a reserve of zero")), msgspec.json.encode(sample())
    first = decode(bad, reader=reader, quarantine=True)
    second = decode(bad, reader=reader, quarantine=True)
    assert second.quarantined == first.quarantined and second.pools == first.pools
    assert decode(good, reader=reader, quarantine=True).quarantined == ()
    assert decode(bad, reader=reader, quarantine=True).quarantined == first.quarantined


@pytest.mark.parametrize("field", ["id", "lpToken", "address"])
def test_pools_that_claim_one_name_are_all_doubtful(field: str) -> None:
    """Which of two is the true one nobody knows: both are left out."""
    content = sample()
    content["pools"][3][field] = content["pools"][2][field]
    found = decode(msgspec.json.encode(content), quarantine=True)
    assert len(found.pools) == len(content["pools"]) - 2
    assert len(found.quarantined) == 2
    assert all(f".{field}: another pool has it too" in item.reason for item in found.quarantined)


@pytest.mark.parametrize("false", [1, 3])
def test_a_pool_that_names_anothers_lp_token_does_not_cost_it_its_place(false: int) -> None:
    """Where the document's tokens say whose it is, the other one alone is left out, whether or not it is traded."""
    content = sample()
    content["pools"][false]["lpToken"] = content["pools"][0]["lpToken"]
    found = decode(msgspec.json.encode(content), quarantine=True)
    assert [item.name for item in found.quarantined] == [f"p{false}"]
    assert "LPTOKEN-000000 is the LP token of another pool" in found.quarantined[0].reason
    assert found.pools[0].id == "p0"


@pytest.mark.parametrize("shares", [[], [{"identifier": "LPTOKEN-000001", "decimals": 18}]])
@pytest.mark.parametrize("quarantine", [True, False])
def test_what_comes_twice_and_is_the_same_is_one(quarantine: bool, shares: list[dict[str, Any]]) -> None:
    """An upstream that lists in pages says so at their ends; where anything differs nobody knows which one is true.

    It need not say of shares that they are ones.
    """
    content = sample()
    content["tokens"] += shares
    whole = decode(msgspec.json.encode(content))
    content["tokens"] += content["tokens"][:2]
    content["pools"] += content["pools"][:2]
    found = decode(msgspec.json.encode(content), quarantine=quarantine)
    assert (found.tokens, found.pools, found.quarantined) == (whole.tokens, whole.pools, ())
    content["pools"][-1] = content["pools"][-1] | {"reserves": ["1000", "2000"]}
    content["tokens"][-1] = content["tokens"][-1] | {"decimals": 17}
    doubtful = decode(msgspec.json.encode(content), quarantine=True)
    assert content["tokens"][-1]["identifier"] not in {token.identifier for token in doubtful.tokens}
    assert content["pools"][-1]["id"] not in {pool.id for pool in doubtful.pools}


def test_a_faulty_token_costs_the_pools_that_trade_it() -> None:
    """A token without sense is left out, with every pool that has it; the others are as before."""
    content = sample()
    content["tokens"][2]["decimals"] = 99
    found = decode(msgspec.json.encode(content), quarantine=True)
    assert "USDT-f8c08c" not in {token.identifier for token in found.tokens}
    assert found.pools
    assert not any("USDT-f8c08c" in pool.tokens for pool in found.pools)
    assert found.quarantined[0].reason.startswith("$.tokens[2].decimals")


def test_a_broken_frame_is_no_document() -> None:
    """Without the wrapped token, or with a version nobody knows, there is nothing to build on."""
    for field, value in (("version", 9), ("wrappedNativeToken", "NOPE-123456"), ("pools", {}), ("tokens", 1)):
        content = sample() | {field: value}
        with pytest.raises(DocumentError):
            decode(msgspec.json.encode(content), quarantine=True)


FALSE_SHARES = {
    "the wrapped native token": ("WEGLD-bd4d79", {"isLp": True, "lpOf": "p3"}),
    "a token that is no LP token": ("USDT-f8c08c", {}),
    "the LP token of another pool": ("USDT-f8c08c", {"isLp": True, "lpOf": "p5"}),
}


@pytest.mark.parametrize("fault", FALSE_SHARES)
def test_a_pool_with_another_tokens_name_for_its_shares_is_left_out(fault: str) -> None:
    """An LP token that the document's tokens know as another thing costs the pool that names it, and only that one."""
    token, marks = FALSE_SHARES[fault]
    content = sample()
    next(info for info in content["tokens"] if info["identifier"] == token).update(marks)
    own = [name for name in ("WEGLD-bd4d79", "USDC-c76f1f", "USDT-f8c08c") if name != token]
    content["pools"][3] |= {"tokens": own, "reserves": ["10", "10"], "lpToken": token}
    content["pools"][3].pop("underlyingPrices", None)
    found = decode(data(content), quarantine=True)
    assert [item.name for item in found.quarantined] == ["p3"]
    assert found.quarantined[0].reason.startswith(f"$.pools[3].lpToken: {token} is ")
    assert [pool.id for pool in found.pools] == [one["id"] for one in content["pools"] if one["id"] != "p3"]


@pytest.mark.parametrize("marks", [{"isLp": True, "lpOf": "p3"}, {"isLp": True}, {}, None])
def test_shares_that_are_said_to_be_the_pools_are_taken(marks: dict[str, Any] | None) -> None:
    """Also where the document does not say whose they are, or does not list them: while nobody trades them."""
    content = sample()
    if marks is not None:
        content["tokens"].append({"identifier": "LPTOKEN-000003", "decimals": 18, **marks})
    found = decode(data(content), quarantine=True)
    assert found.quarantined == ()
    assert found.pools[3].lp_token == "LPTOKEN-000003"
