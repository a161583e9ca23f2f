"""What contract calls cost, in gas units beyond the transaction's own (move) cost.

A fixed price per action, on the scale seen on the live chain: about 8 M for a call through one pool and
20 M through three.
"""

from typing import Final

from millrace.dex.aggregator_contract import Action

CALL: Final = 1_000_000
"""Any contract call, before it does anything."""

SWAP: Final = 5_000_000
STABLE_SWAP: Final = 5_500_000
CRYPTO_SWAP: Final = 5_500_000
ADD: Final = 5_500_000
REMOVE: Final = 5_500_000
ZAP: Final = 8_000_000
"""A deposit for which the aggregator contract first searches the balancing swap."""
WRAP: Final = 1_000_000

_GAS: Final[dict[int, int]] = {
    Action.ASH_STABLE_SWAP: STABLE_SWAP,
    Action.JEX_STABLE_SWAP: STABLE_SWAP,
    Action.ASH_CRYPTO_SWAP: CRYPTO_SWAP,
    Action.XEXCHANGE_ADD: ZAP,
    Action.ONEDEX_ADD: ZAP,
    Action.JEX_ADD: ZAP,
    Action.ASH_STABLE_ADD: ADD,
    Action.ASH_CRYPTO_ADD: ADD,
    Action.JEX_STABLE_ADD: ADD,
    Action.XEXCHANGE_REMOVE: REMOVE,
    Action.ONEDEX_REMOVE: REMOVE,
    Action.JEX_REMOVE: REMOVE,
    Action.ASH_STABLE_REMOVE: REMOVE,
    Action.ASH_CRYPTO_REMOVE: REMOVE,
    Action.JEX_STABLE_REMOVE: REMOVE,
    Action.WRAP: WRAP,
    Action.UNWRAP: WRAP,
}


def of_action(action: int) -> int:
    """Gas of one instruction of the aggregator contract. Unknown actions cost a swap, then fail."""
    return _GAS.get(action, SWAP)
