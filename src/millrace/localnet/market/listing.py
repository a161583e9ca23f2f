"""Real tokens that the generated market begins with: identifiers and decimals as on mainnet.

Prices are round figures in US dollars, there to make reserves look right; they promise nothing. `peg` names
the token whose price this one follows, `ratio` (over 10^6) how.
"""

from typing import Final, NamedTuple


class Listed(NamedTuple):
    """One real token. `price` is a decimal text; empty where the generator may choose."""

    identifier: str
    decimals: int
    price: str = ""
    peg: str = ""
    ratio: int = 1_000_000


HUBS: Final = 8
"""The first so many tokens carry most of the liquidity."""

TOKENS: Final = (
    Listed("WEGLD-bd4d79", 18, "40"),
    Listed("USDC-c76f1f", 6, "1"),
    Listed("USDT-f8c08c", 6, "1", "USDC-c76f1f"),
    Listed("MEX-455c57", 18, "0.0000025"),
    Listed("UTK-2f80e9", 18, "0.06"),
    Listed("ASH-a642d1", 18, "0.008"),
    Listed("ONE-f9954f", 18, "0.12"),
    Listed("JEX-9040ca", 18, "0.003"),
    Listed("BUSD-40b57e", 18, "1", "USDC-c76f1f"),
    Listed("SEGLD-3ad2d0", 18, "", "WEGLD-bd4d79", 1_054_372),
    Listed("HTM-f51d55", 18, "0.9"),
    Listed("RIDE-7d18e9", 18, "0.01"),
    Listed("ITHEUM-df6f26", 18, "0.09"),
    Listed("WBTC-5349b3", 8, "65000"),
    Listed("WETH-b4ca29", 18, "3200"),
    Listed("WDAI-9eeb54", 18, "1", "USDC-c76f1f"),
    Listed("JWLUSD-62939e", 18, "1", "USDC-c76f1f"),
    Listed("LEGLD-d74da9", 18, "", "WEGLD-bd4d79", 1_031_940),
    Listed("JWLEGLD-023462", 18, "", "WEGLD-bd4d79", 1_000_000),
    Listed("HSEGLD-c13a4e", 8, "", "SEGLD-3ad2d0", 20_450),
    Listed("WSDAI-277fee", 18, "", "WDAI-9eeb54", 1_049_000),
    Listed("APUSDC-1ac537", 6, "", "USDC-c76f1f", 1_012_500),
    Listed("JWLASH-f362b9", 18, "", "ASH-a642d1"),
    Listed("JWLBTC-c80796", 18, "", "WBTC-5349b3"),
    Listed("JWLETH-e458bc", 18, "", "WETH-b4ca29"),
    Listed("JWLHTM-8e3cd5", 18, "", "HTM-f51d55"),
    Listed("JWLMEX-ef8788", 18, "", "MEX-455c57"),
    Listed("JWLUTK-2a518c", 18, "", "UTK-2f80e9"),
    Listed("CRT-52decf", 18),
    Listed("AERO-458bbf", 18),
    Listed("ZPAY-247875", 18),
    Listed("BHAT-c1fde3", 18),
    Listed("CYBER-489c1c", 18),
    Listed("SUPER-507aa6", 18),
    Listed("LAND-40f26f", 18),
    Listed("KRO-df97ec", 18),
    Listed("PROTEO-0c7311", 18),
    Listed("ESTAR-461bab", 18),
    Listed("RARE-99e8b0", 18),
    Listed("XLH-8daa50", 18),
    Listed("PLATA-9ba6c3", 8),
    Listed("CPA-97530a", 6),
    Listed("QWT-46ac01", 6),
    Listed("ISET-84e55e", 6),
    Listed("ZOG-c66239", 6),
    Listed("OFE-29eb54", 4),
    Listed("CHECKR-60108b", 5),
    Listed("BSK-baa025", 16),
    Listed("HODL-b8bd81", 8),
    Listed("REWARD-cf6eac", 8),
    Listed("HODL-d7f4b5", 18),
    Listed("ANT-dada1a", 18),
    Listed("CGO-5e9528", 18),
    Listed("CRU-a5f4aa", 18),
    Listed("CTP-298075", 18),
    Listed("DEAD-4c133a", 18),
    Listed("DNA-b144d1", 18),
    Listed("EFFORT-a13513", 18),
    Listed("EPUNKS-dc0f59", 18),
    Listed("HYPE-619661", 18),
    Listed("INFRA-43985c", 18),
    Listed("INSTANT-086961", 18),
    Listed("JOY-43bad3", 18),
    Listed("KOSON-5dd4fa", 18),
    Listed("LAUNCH-3e2258", 18),
    Listed("LPAD-84628f", 18),
    Listed("MERMAID-9c388a", 18),
    Listed("MID-ecb7bf", 18),
    Listed("MOOVE-875539", 18),
    Listed("SFIT-aebc90", 18),
    Listed("VITAL-ab7917", 18),
    Listed("WAM-510e42", 18),
    Listed("XAPES-1d15a5", 18),
)

MAIN_PAIR_TOKENS: Final = ("WEGLD-bd4d79", "USDC-c76f1f", "BUSD-40b57e", "USDT-f8c08c", "ONE-f9954f")
"""Tokens on whose side OneDex takes its fee."""

STABLE_GROUPS: Final = (
    ("USDC-c76f1f", "USDT-f8c08c"),
    ("USDC-c76f1f", "USDT-f8c08c", "BUSD-40b57e"),
    ("SEGLD-3ad2d0", "WEGLD-bd4d79"),
    ("WDAI-9eeb54", "USDT-f8c08c", "JWLUSD-62939e"),
    ("WEGLD-bd4d79", "LEGLD-d74da9"),
    ("JWLEGLD-023462", "WEGLD-bd4d79"),
    ("USDC-c76f1f", "WDAI-9eeb54"),
    ("HSEGLD-c13a4e", "SEGLD-3ad2d0"),
    ("JWLUSD-62939e", "USDC-c76f1f"),
    ("APUSDC-1ac537", "USDC-c76f1f"),
    ("WSDAI-277fee", "WDAI-9eeb54"),
    ("JWLASH-f362b9", "ASH-a642d1"),
    ("JWLBTC-c80796", "WBTC-5349b3"),
    ("JWLETH-e458bc", "WETH-b4ca29"),
    ("JWLHTM-8e3cd5", "HTM-f51d55"),
    ("JWLMEX-ef8788", "MEX-455c57"),
    ("JWLUTK-2a518c", "UTK-2f80e9"),
    ("SEGLD-3ad2d0", "LEGLD-d74da9"),
    ("BUSD-40b57e", "WDAI-9eeb54"),
    ("USDT-f8c08c", "JWLUSD-62939e"),
)
"""Tokens of like value that share stable pools."""

CRYPTO_PAIRS: Final = (
    ("USDC-c76f1f", "WEGLD-bd4d79"),
    ("USDT-f8c08c", "ASH-a642d1"),
    ("BUSD-40b57e", "WEGLD-bd4d79"),
    ("WEGLD-bd4d79", "ASH-a642d1"),
    ("USDC-c76f1f", "WBTC-5349b3"),
    ("USDC-c76f1f", "WETH-b4ca29"),
    ("WEGLD-bd4d79", "HTM-f51d55"),
    ("USDT-f8c08c", "UTK-2f80e9"),
    ("WEGLD-bd4d79", "WBTC-5349b3"),
    ("WETH-b4ca29", "WBTC-5349b3"),
)
"""Pairs that have crypto pools."""
