"""What the published contracts do when they are called, told to the meter: code loaded, keys read, tokens sent.

Sends, mints and burns follow the contracts' sources. How many keys a function reads was counted on a node of
mx-chain-go with the compiled contracts; how they overlap between a contract's functions is estimated. `code` (bytes)
and `compute` (gas of the function's own instructions) are what the gas measured on that node leaves for them. Not
measured are AshSwap's pools, whose source is not public, and pools of more than two tokens: those are estimated.
"""

from typing import Final, NamedTuple

from millrace.dex.aggregator_contract import XEXCHANGE_ROUTER
from millrace.dex.constant_product import OneDexPool, XExchangePool
from millrace.dex.pool import Pool
from millrace.dex.rate import RATE_POOLS
from millrace.dex.run import Balancing
from millrace.localnet.contracts import special_fee
from millrace.localnet.contracts.meter import Keys, Meter


class Function(NamedTuple):
    """One function of a pool's contract: keys it reads, how many it writes, gas of its own instructions."""

    compute: int
    keys: tuple[Keys, ...]
    writes: int


class PoolCode(NamedTuple):
    """An exchange's contract.

    `fee_sends` are the fees that a swap pays out; `one_by_one` says that several tokens leave one by one, not in a
    single transfer. `settings` are keys that all pools of the contract share, those of a withdrawal first.
    `uncached` keys count at every use.
    """

    code: int
    swap: Function
    add: Function
    remove: Function
    fee_sends: int = 0
    one_by_one: bool = False
    settings: tuple[Keys, ...] = ()
    uncached: int = 0


def _pool_keys(core: int, trade: int, shares: int, deposit: int) -> tuple[tuple[Keys, ...], ...]:
    """Keys of a swap, a deposit and a withdrawal: the tokens and reserves are common to all three."""
    common, issued = Keys("core", core), Keys("shares", shares)
    return (common, Keys("trade", trade)), (common, issued, Keys("deposit", deposit)), (common, issued)


def _exchange(
    code: int, keys: tuple[tuple[Keys, ...], ...], compute: tuple[int, int, int], swap_writes: int
) -> PoolCode:
    swap, add, remove = (Function(*each) for each in zip(compute, keys, (swap_writes, 3, 3), strict=True))
    return PoolCode(code, swap, add, remove)


K: Final = 1_000

# A swap reads 18 keys, 2 of them the router's; a deposit after it 8 more; a withdrawal 11 in all.
XEXCHANGE: Final = _exchange(special_fee.PAIR_CODE, _pool_keys(6, 10, 5, 3), (1_550 * K, 1_000 * K, 2_300 * K), 4)
# A swap reads 9 and once 11 of the router's, a deposit after it 10 more (its own roles again), a withdrawal 13 in all.
ONEDEX: Final = _exchange(30_000, _pool_keys(5, 3, 3, 6), (1_080 * K, 1_400 * K, 1_050 * K), 4)._replace(
    fee_sends=2, one_by_one=True, settings=(Keys("state", 4), Keys("trading", 7)), uncached=1
)
# A swap reads 11, a deposit after it 10 more, a withdrawal 6 in all.
JEX: Final = _exchange(20_000, _pool_keys(4, 7, 2, 8), (710 * K, 900 * K, 550 * K), 2)._replace(
    fee_sends=1, one_by_one=True
)
# A swap reads 17, a deposit after it 3 more, a withdrawal 7 in all.
JEX_STABLE: Final = _exchange(26_000, _pool_keys(4, 13, 3, 0), (2_270 * K, 2_700 * K, 1_850 * K), 2)._replace(
    fee_sends=1
)
# Estimated: two transfers a swap, 17 keys as JEX's stable pools; 11 M for a swap in a stable, 13 M in a crypto pool.
ASH_STABLE: Final = _exchange(40_000, _pool_keys(6, 11, 3, 0), (4_400 * K, 5_000 * K, 4_000 * K), 3)
ASH_CRYPTO: Final = _exchange(40_000, _pool_keys(6, 11, 3, 0), (6_400 * K, 7_000 * K, 4_000 * K), 3)
# Estimated: two transfers and a mint or burn, 20 keys; 16 M for a trade. There is nothing else to call.
RATE: Final = _exchange(40_000, _pool_keys(6, 14, 0, 0), (9_000 * K, 9_000 * K, 9_000 * K), 3)._replace(fee_sends=1)

CODE: Final[dict[tuple[str, str], PoolCode]] = {
    ("XExchange", "constant_product"): XEXCHANGE,
    ("OneDex", "constant_product"): ONEDEX,
    ("Jex", "constant_product"): JEX,
    ("Jex", "stable"): JEX_STABLE,
    ("AshSwap", "stable"): ASH_STABLE,
    ("AshSwap", "crypto"): ASH_CRYPTO,
    **dict.fromkeys(RATE_POOLS, RATE),
}
"""By a pool's exchange and kind."""

TOKEN_READS: Final = 2  # keys of each token beyond two, estimated; a swap or deposit reads as many of its rate
TOKEN_COMPUTE: Final = 1_170 * K  # a swap takes 1.5 M more for each of these tokens, estimated

AGGREGATOR_CODE: Final = 36_000
BEGIN: Final = 170 * K  # the program is read and the vault filled
PAYMENT: Final = 100 * K  # each payment beyond the first, estimated
INSTRUCTION: Final = 300 * K
LAST_SEND: Final = 130 * K  # besides the transfer itself
BALANCE: Final = 2_000 * K  # a deposit's balancing swap: everything but the loops of the search
LOOP: Final = 110 * K
"""One loop of the search: about 22 operations on large numbers. 64 loops, for amounts near 10^18, were measured."""
KEEP: Final = 800 * K  # what is left over is booked for the contract
REFERRAL: Final = 760 * K

WRAPPER_CODE: Final = 12_000
WRAP: Final = 250 * K
UNWRAP: Final = 650 * K
WRAPPER_KEYS: Final = (Keys("wrapper", 2),)


def code_of(pool: Pool) -> PoolCode:
    """The code of a pool's contract."""
    return CODE[pool.exchange, pool.kind]


# What a pool's contract does. Its caller has paid already; what it pays out is `pay_out`.


def trade(meter: Meter, pool: Pool, token_in: str, amount: int) -> None:
    """A swap of `amount`, its fees included, up to the output's transfer."""
    code = code_of(pool)
    _run(meter, pool, code.swap, code.settings)
    _further_tokens(meter, pool, priced=True)
    if isinstance(pool, XExchangePool):
        special_fee.send(meter, pool, token_in, amount)
    for _ in range(code.fee_sends):
        meter.send()
    if isinstance(pool, OneDexPool) and pool.tokens[0] != token_in:
        _read(meter, pool, (Keys("reversed", 1),))  # the pair is looked for under the tokens as they come first


def add(meter: Meter, pool: Pool) -> None:
    """A deposit, up to the transfer of the LP units."""
    code = code_of(pool)
    _run(meter, pool, code.add, code.settings[:1])
    if pool.kind != "constant_product":
        _read(meter, pool, code.swap.keys)  # a deposit out of balance pays the fees of a swap
    _further_tokens(meter, pool, priced=True)
    meter.mint()


def remove(meter: Meter, pool: Pool) -> None:
    """A withdrawal, up to the transfers of the tokens."""
    code = code_of(pool)
    _run(meter, pool, code.remove, code.settings[:1])
    _further_tokens(meter, pool, priced=False)
    meter.burn()


def pay_out(meter: Meter, pool: Pool, tokens: int = 1) -> None:
    """The pool's contract sends so many tokens to its caller."""
    if code_of(pool).one_by_one:
        for _ in range(tokens):
            meter.send()
    else:
        meter.send(tokens)


def _run(meter: Meter, pool: Pool, function: Function, settings: tuple[Keys, ...]) -> None:
    meter.read(pool.address, settings)
    meter.read_uncached(code_of(pool).uncached)
    _read(meter, pool, function.keys)
    meter.use(function.compute)
    meter.write(function.writes)


def _read(meter: Meter, pool: Pool, keys: tuple[Keys, ...]) -> None:
    meter.read(pool.address, keys, str(pool.pair_id) if isinstance(pool, OneDexPool) else "")


def _further_tokens(meter: Meter, pool: Pool, *, priced: bool) -> None:
    for k in range(2, len(pool.tokens)):
        names = (f"token {k}", f"rate {k}") if priced else (f"token {k}",)
        _read(meter, pool, tuple([Keys(name, TOKEN_READS) for name in names]))
        meter.use(TOKEN_COMPUTE)


# What the aggregator contract does.


def begin(meter: Meter, payments: int) -> None:
    """The program is read; `payments` came with it."""
    meter.use(BEGIN + PAYMENT * max(payments - 1, 0))


def swap(meter: Meter, pool: Pool, token_in: str, amount: int) -> None:
    """An instruction that swaps."""
    meter.use(INSTRUCTION)
    _swap(meter, pool, token_in, amount)


def deposit(meter: Meter, pool: Pool, inputs: int, balancing: Balancing | None) -> None:
    """An instruction that deposits so many tokens; `balancing` tells how their amounts were balanced first."""
    meter.use(INSTRUCTION)
    left = 0
    if balancing is not None:
        left = len(balancing.left)
        meter.use(BALANCE + LOOP * balancing.loops)
        if balancing.sold is not None:
            _swap(meter, pool, *balancing.sold)
        _look_up(meter, pool, pool.tokens[0])
    _call(meter, pool, inputs)
    add(meter, pool)
    pay_out(meter, pool, 1 + left)


def withdraw(meter: Meter, pool: Pool, outputs: int) -> None:
    """An instruction that redeems LP units for so many tokens."""
    meter.use(INSTRUCTION)
    _call(meter, pool, 1)
    remove(meter, pool)
    pay_out(meter, pool, outputs)


def wrap_egld(meter: Meter, wrapper: bytes) -> None:
    """An instruction that wraps EGLD."""
    meter.use(INSTRUCTION)
    wrap(meter, wrapper, nested=True)


def unwrap_egld(meter: Meter, wrapper: bytes) -> None:
    """An instruction that unwraps EGLD."""
    meter.use(INSTRUCTION)
    unwrap(meter, wrapper, nested=True)


def keep(meter: Meter, contract: bytes, token: str, *, booked: bool) -> None:
    """A token that is left over is booked for the contract; `booked`: it has been before."""
    meter.use(KEEP)
    meter.read(contract, (Keys("kept", 2),) if booked else (Keys("kept", 2), Keys("new", 3)), token)
    meter.write(1 if booked else 5)


def referral_fee(meter: Meter, contract: bytes, token: str, *, charged: bool, booked: bool) -> None:
    """A referral is looked up and, where it is active, its fee is booked; `booked`: this token has been before."""
    meter.read(contract, (Keys("referral", 2),))
    if charged:
        meter.use(REFERRAL)
        meter.read(contract, (Keys("fee", 4),) if booked else (Keys("fee", 4), Keys("new fee", 6)), token)
        meter.write(3 if booked else 7)


def end(meter: Meter, *, native: bool) -> None:
    """The output goes to the caller; EGLD (`native`) is no built-in call."""
    if not native:
        meter.use(LAST_SEND)
        meter.send()


def _swap(meter: Meter, pool: Pool, token_in: str, amount: int) -> None:
    _look_up(meter, pool, token_in)
    _call(meter, pool, 1)
    trade(meter, pool, token_in, amount)
    pay_out(meter, pool)


def _look_up(meter: Meter, pool: Pool, token_in: str) -> None:
    """xExchange's router is asked for the pair of the output and the input, then for that of the input and output."""
    if isinstance(pool, XExchangePool):
        asked = (Keys("reversed", 1), Keys("pair", 1)) if pool.tokens[0] == token_in else (Keys("pair", 1),)
        meter.read(XEXCHANGE_ROUTER, asked, pool.id)


def _call(meter: Meter, pool: Pool, tokens: int) -> None:
    meter.send(tokens)
    meter.enter(code_of(pool).code)


# What the wrapper does: `nested` for another contract, which sends it tokens, otherwise for an account.


def wrap(meter: Meter, wrapper: bytes, *, nested: bool) -> None:
    """EGLD comes, the wrapped token goes back."""
    if nested:
        meter.enter(WRAPPER_CODE)
    meter.read(wrapper, WRAPPER_KEYS)
    meter.use(WRAP)
    meter.mint()
    meter.send()


def unwrap(meter: Meter, wrapper: bytes, *, nested: bool) -> None:
    """The wrapped token comes, EGLD goes back."""
    if nested:
        meter.send()
        meter.enter(WRAPPER_CODE)
    meter.read(wrapper, WRAPPER_KEYS)
    meter.use(UNWRAP)
    meter.burn()
