"""What an xExchange pair does with the special fee of a swap, told to the meter.

The collector's cut is sent to the fees collector; each fee destination's slice is burned, sold in the pair and burned,
or sold and burned in a trusted pair. With a slice that can be sold nowhere the swap reverts. Of a pair of which that is
not known the dear case is assumed: a cut for the collector and one slice sold in a pair that nobody else uses.
Source: `mx-exchange-sc`, the pair's `fee` module.
"""

from typing import Final

from millrace.dex.constant_product import XExchangePool
from millrace.localnet.contracts.meter import Keys, Meter

PAIR_CODE: Final = 38_000
COLLECTOR_CODE: Final = 25_000  # bytes

COLLECTOR: Final = b"fees collector"
"""Its name among contracts that keys are read of, where its address is not known."""
COLLECTOR_KEYS: Final = (Keys("week", 1),)
"""Of the collector, whatever pairs send to it."""
CUT_KEYS: Final = (Keys("cut", 2), Keys("collected", 3))
"""Of a pair, and of the collector for that pair."""
CUT_COMPUTE: Final = 800_000

SLICE_READS: Final = 4
SLICE_COMPUTE: Final = 330_000
SOLD_KEYS: Final = (Keys("core", 6), Keys("trade", 10), Keys("whitelist", 1))
"""Of the trusted pair: those of a swap in it, and whether the seller may sell without fees."""
SOLD_COMPUTE: Final = 820_000


def send(meter: Meter, pool: XExchangePool, token_in: str, amount: int) -> None:
    """The special fee of a swap of `amount`; nothing where it rounds to zero."""
    special = amount * pool.special_fee // pool.fee_base if pool.fee_enabled else 0
    if special == 0:
        return
    if pool.fee_use is None:
        _cut(meter, pool)
        _slice(meter, pool, 0)
        _sell(meter, b"a pair trusted by " + pool.address)
        return
    cut = pool.collector_fee(amount)
    if cut:
        _cut(meter, pool)
    outlets = pool.outlets[pool.index(token_in)]
    if not outlets or (special - cut) // len(outlets) == 0:
        return
    for number, outlet in enumerate(outlets):
        if outlet is None:
            return  # the swap reverts
        _slice(meter, pool, number)
        if outlet.address:
            _sell(meter, outlet.address)
        else:
            meter.burn()


def _cut(meter: Meter, pool: XExchangePool) -> None:
    """One transfer, with which the collector runs."""
    meter.read(pool.address, CUT_KEYS)
    meter.send()
    meter.enter(COLLECTOR_CODE)
    meter.read(pool.fees_collector or COLLECTOR, COLLECTOR_KEYS)
    meter.use(CUT_COMPUTE)
    meter.write(2)


def _slice(meter: Meter, pool: XExchangePool, number: int) -> None:
    meter.read(pool.address, (Keys(f"destination {number}", SLICE_READS),))
    meter.use(SLICE_COMPUTE)
    meter.write(1)


def _sell(meter: Meter, pair: bytes) -> None:
    """One transfer, with which the trusted pair sells and burns."""
    meter.send()
    meter.enter(PAIR_CODE)
    meter.read(pair, SOLD_KEYS)
    meter.use(SOLD_COMPUTE)
    meter.write(2)
    meter.burn()
