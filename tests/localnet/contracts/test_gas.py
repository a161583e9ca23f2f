"""What calls take on the local chain, held against what was measured on a node with the compiled contracts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.chain.call import TokenPayment
from millrace.chain.token import NATIVE
from millrace.dex import aggregator_contract as xo
from millrace.dex.aggregator_contract import ALL, AUTO, CONTRACT, EGLD_INDEX, WRAPPER, Action, Instruction, Program
from millrace.dex.constant_product import FeeDestination, JexPool, OneDexPool, TrustedPair, XExchangePool
from millrace.dex.market import DictMarket
from millrace.dex.pool import Pool
from millrace.dex.run import Asset, Balancing
from millrace.dex.stable import JexStablePool
from millrace.dex.vault import Referral
from millrace.localnet.contracts import gas, special_fee
from millrace.localnet.contracts.aggregator import Aggregator, set_referral
from millrace.localnet.contracts.calls import CallResult, ContractCall
from millrace.localnet.contracts.execution import EXECUTION_FAILED, OUT_OF_GAS, execute_call
from millrace.localnet.contracts.frame import Contract, State
from millrace.localnet.contracts.ledger import Ledger
from millrace.localnet.contracts.meter import TOO_MANY_CALLS, TRANSFER, Meter, Usage, first_load
from millrace.localnet.contracts.wrapper import Wrapper

WRAPPED = "WEGLD-bd4d79"
ELSEWHERE = "MEX-455c57"
USER, COLLECTOR = b"u" * 32, b"c" * 32
RESERVE, AMOUNT = 10**26, 10**18
M = 1_000_000
NO_LIMIT = 10**12


def token(number: int) -> str:
    return f"TKN-{number:06x}" if number else WRAPPED


def address(number: int, tag: int = 1) -> bytes:
    return bytes([0] * 8 + [tag]) + number.to_bytes(23)


def xexchange(number: int, fee: str, tokens: tuple[str, str] | None = None) -> XExchangePool:
    """A pair; `fee`: off, collector (all of it), here, elsewhere (half of it each), unknown."""
    pair = tokens or (token(number), token(number + 1))
    wanted = {"here": pair[0], "elsewhere": ELSEWHERE}.get(fee)
    known = fee != "unknown"
    return XExchangePool(
        id=f"x{number}",
        address=address(number),
        tokens=pair,
        reserves=(RESERVE, RESERVE),
        lp_token=f"XLP-{number:06x}",
        lp_supply=RESERVE,
        total_fee=300,
        special_fee=0 if fee == "off" else 50,
        fees_collector=COLLECTOR if known else None,
        fees_collector_cut=100_000 if fee == "collector" else 50_000,
        fee_destinations=((FeeDestination(USER, wanted),) if wanted else ()) if known else None,
        trusted_pairs=(TrustedPair((pair[0], ELSEWHERE), address(number, 2)),) if known else None,
    )


def onedex(number: int, tokens: tuple[str, str] | None = None) -> OneDexPool:
    return OneDexPool(
        id=f"o{number}",
        address=address(0, 3),
        pair_id=number,
        tokens=tokens or (token(number), token(number + 1)),
        reserves=(RESERVE, RESERVE),
        lp_token=f"OLP-{number:06x}",
        lp_supply=RESERVE,
        total_fee=100,
        special_fee=20,
        staking_fee=30,
        main=(True, False),
    )


def jex(number: int) -> JexPool:
    return JexPool(
        id=f"j{number}",
        address=address(number),
        tokens=(token(number), token(number + 1)),
        reserves=(RESERVE, RESERVE),
        lp_token=f"JLP-{number:06x}",
        lp_supply=RESERVE,
        lp_fee=20,
        platform_fee=10,
        token_id_keys=True,
    )


def jex_stable(number: int) -> JexStablePool:
    return JexStablePool(
        id=f"s{number}",
        address=address(number),
        tokens=(token(number), token(number + 1)),
        reserves=(RESERVE, RESERVE),
        lp_token=f"SLP-{number:06x}",
        lp_supply=2 * RESERVE,
        decimals=(18, 18),
        prices=(10**18, 10**18),
        amp=100,
        swap_fee=400,
        liquidity_fee=200,
    )


SWAPS = {
    ("XExchange", "constant_product"): Action.XEXCHANGE_SWAP,
    ("OneDex", "constant_product"): Action.ONEDEX_SWAP,
    ("Jex", "constant_product"): Action.JEX_SWAP,
    ("Jex", "stable"): Action.JEX_STABLE_SWAP,
}
SORTS: dict[str, Callable[[int], Pool]] = {
    "off": lambda number: xexchange(number, "off"),
    "collector": lambda number: xexchange(number, "collector"),
    "here": lambda number: xexchange(number, "here"),
    "elsewhere": lambda number: xexchange(number, "elsewhere"),
    "onedex": onedex,
    "jex": jex,
    "stable": jex_stable,
}


class Plan:
    """A small market of its own and a program through some of its pools, in order."""

    def __init__(self, pools: Sequence[Pool], trie_depth: int = 2) -> None:
        self.pools = pools
        wrapper = Wrapper(WRAPPER, WRAPPED)
        ledger = Ledger()
        market = DictMarket(pools, WRAPPED)
        market.pools = ledger.pools
        receivers = dict.fromkeys(("XExchange", "OneDex", "Jex", "AshSwap"), COLLECTOR)
        contracts: list[Contract] = [wrapper, Aggregator(CONTRACT, market, wrapper, receivers), Contract(COLLECTOR)]
        contracts += [Contract(pool.address) for pool in pools]
        self.state = State(ledger, {contract.address: contract for contract in contracts}, lambda pubkey: True)
        self.state.trie_depth = trie_depth
        ledger.put_pools(pools)
        for pool in pools:
            for name, reserve in zip(pool.tokens, pool.reserves, strict=True):
                ledger.credit(pool.address, name, reserve)
        ledger.credit(WRAPPER, NATIVE, 10 * RESERVE)
        set_referral(self.state, CONTRACT, Referral(1, 10, 20))
        self.names: list[str] = []
        self.addresses: list[bytes] = []
        self.instructions: list[Instruction] = []

    def index(self, name: str) -> int:
        if name == NATIVE:
            return EGLD_INDEX
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)

    def at(self, pool: Pool) -> int:
        self.addresses.append(pool.address)
        return len(self.addresses) - 1

    def swap(self, pool: Pool, token_in: str, token_out: str, mode: int = ALL) -> None:
        action = SWAPS[pool.exchange, pool.kind]
        w = self.at(pool) if action in xo.NEEDS_ADDRESS else AUTO
        self.instructions.append(xo.swap(action, self.index(token_in), self.index(token_out), mode, w))

    def wrap(self, action: Action) -> None:
        self.instructions.append(xo.swap(action, EGLD_INDEX if action == Action.WRAP else self.index(WRAPPED), 0, ALL))

    def run(
        self,
        token_in: str,
        token_out: str,
        *,
        amount: int = AMOUNT,
        limit: int = NO_LIMIT,
        minimum: int = 1,
        referral: int = 0,
        amounts: tuple[int, ...] = (),
    ) -> CallResult:
        out = self.index(token_out)
        self.program = Program(
            tuple(self.names), tuple(self.addresses), amounts, tuple(self.instructions), minimum, out, referral
        )
        self.data = xo.tx_data(self.program, token_in, amount)
        payment = TokenPayment(token_in, 0, amount)
        args = tuple(xo.encode_arguments(self.program))
        return execute_call(self.state, ContractCall(USER, CONTRACT, 0, (payment,), "xo", args, limit))

    def on_the_node(self, result: CallResult) -> int:
        """Gas of the whole transaction, as it was measured: with its data and its own transfer."""
        carried = TRANSFER if self.data.startswith(b"ESDTTransfer") else 0
        return result.gas_used + carried + 50_000 + 1_500 * len(self.data)


def chained(sorts: Sequence[str], trie_depth: int = 2) -> Plan:
    """Pools of these sorts, each fed by the one before."""
    plan = Plan([SORTS[sort](number) for number, sort in enumerate(sorts)], trie_depth)
    for pool in plan.pools:
        plan.swap(pool, *pool.tokens)
    return plan


def run_chain(sorts: Sequence[str], **how: Any) -> tuple[Plan, CallResult]:
    plan = chained(sorts, how.pop("trie_depth", 2))
    return plan, plan.run(token(0), token(len(sorts)), **how)


def usage(calls: int, transfers: int, reads: int) -> Usage:
    return Usage(calls, transfers, reads)


# What one action takes, in a transaction that has used the exchange before.

COLLECTED, HERE, SOLD = xexchange(5, "collector"), xexchange(5, "here"), xexchange(5, "elsewhere")
LP_BYTES = 100
"""Bytes that an instruction with an address adds to the data; 36 without one."""


def warm() -> Meter:
    """A meter that has seen another pair of every exchange, so that what is read once a transaction is read."""
    meter = Meter(NO_LIMIT)
    for pool in (xexchange(1, "collector"), onedex(2)):
        gas.swap(meter, pool, pool.tokens[0], AMOUNT)
    return meter


def sell(pool: Pool) -> Callable[[Meter], None]:
    return lambda meter: gas.swap(meter, pool, pool.tokens[0], AMOUNT)


def zap(pool: Pool) -> Callable[[Meter], None]:
    found = Balancing(64, Asset(pool.tokens[0], AMOUNT), (Asset(pool.tokens[1], 7),))
    return lambda meter: gas.deposit(meter, pool, 2, found)


def redeem(pool: Pool) -> Callable[[Meter], None]:
    return lambda meter: gas.withdraw(meter, pool, 2)


ROWS = [
    ("wrap", lambda meter: gas.wrap_egld(meter, WRAPPER), 14, (2, 1, 2), (2.3, 2.3)),
    ("unwrap", lambda meter: gas.unwrap_egld(meter, WRAPPER), 14, (2, 1, 2), (2.7, 2.7)),
    ("fee off", sell(xexchange(5, "off")), 36, (2, 2, 18), (7.9, 7.9)),
    ("collector", sell(COLLECTED), 36, (3, 3, 23), (12.0, 12.0)),
    ("sold here", sell(HERE), 36, (4, 3, 27), (12.8, 12.8)),
    ("sold elsewhere", sell(SOLD), 36, (5, 4, 44), (20, 20)),
    ("not known", sell(xexchange(5, "unknown")), 36, (5, 4, 45), (20, 20)),
    ("OneDex", sell(onedex(5)), 36, (4, 4, 9), (6.6, 6.6)),
    ("JEX", sell(jex(5)), LP_BYTES, (3, 3, 11), (5.0, 5.0)),
    ("JEX stable", sell(jex_stable(5)), LP_BYTES, (3, 3, 17), (7.6, 7.6)),
    ("deposit, collector", zap(COLLECTED), 36, (6, 7, 31), (29, 29)),
    ("deposit, sold here", zap(HERE), 36, (7, 7, 35), (29, 29)),
    ("deposit, sold elsewhere", zap(SOLD), 36, (8, 8, 52), (34, 34)),
    ("OneDex deposit", zap(onedex(5)), 36, (8, 8, 19), (23, 23)),
    ("JEX deposit", zap(jex(5)), LP_BYTES, (7, 7, 21), (19, 19)),
    ("withdraw", redeem(COLLECTED), LP_BYTES, (3, 3, 11), (8, 9)),
    ("OneDex withdraw", redeem(onedex(5)), 36, (4, 3, 9), (6, 7)),
    ("JEX withdraw", redeem(jex(5)), LP_BYTES, (4, 3, 6), (4, 5)),
    ("JEX stable withdraw", redeem(jex_stable(5)), LP_BYTES, (3, 3, 7), (6, 7)),
]


@pytest.mark.parametrize(
    ("work", "data", "counts", "millions"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_an_action_takes_what_was_measured(
    work: Callable[[Meter], None], data: int, counts: tuple[int, int, int], millions: tuple[float, float]
) -> None:
    """Calls, transfers and reads are those counted on the node; gas, data included, is within 5 % of it."""
    meter = warm()
    before, start = meter.usage, meter.gas_used
    work(meter)
    now = meter.usage
    counted = (now.builtin_calls - before.builtin_calls, now.transfers - before.transfers, now.reads - before.reads)
    assert counted == counts
    used = (meter.gas_used - start + 1_500 * data) / M
    assert millions[0] * 0.95 <= used <= millions[1] * 1.05


def test_a_deposit_after_a_swap_reads_only_its_own_keys() -> None:
    """Swap and deposit of a JEX stable pool read 20 keys together; the deposit's part of it takes 7 M."""
    pool, meter = jex_stable(5), Meter(NO_LIMIT)
    sell(pool)(meter)
    before, start = meter.usage, meter.gas_used
    gas.deposit(meter, pool, 2, None)
    now = meter.usage
    assert (now.builtin_calls - before.builtin_calls, now.transfers - before.transfers, now.reads) == (3, 3, 20)
    assert 7 * 0.95 <= (meter.gas_used - start + 1_500 * LP_BYTES) / M <= 7 * 1.05


@pytest.mark.parametrize(
    ("work", "reads", "millions"),
    [
        (zap(onedex(5)), 30, (23, 23)),
        (redeem(onedex(5)), 13, (6, 7)),
        (lambda meter: gas.keep(meter, CONTRACT, "A", booked=True), 2, (1, 2)),
        (lambda meter: gas.keep(meter, CONTRACT, "A", booked=False), 5, (1, 2)),
        (lambda meter: gas.referral_fee(meter, CONTRACT, "A", charged=True, booked=False), 12, (2.4, 2.4)),
        (lambda meter: gas.referral_fee(meter, CONTRACT, "A", charged=True, booked=True), 6, (1, 2.4)),
    ],
)
def test_what_is_read_once_a_transaction_comes_with_the_first_use(
    work: Callable[[Meter], None], reads: int, millions: tuple[float, float]
) -> None:
    """Alone in a transaction a OneDex deposit reads 30 keys and a withdrawal 13; a new token is booked dearer."""
    meter = Meter(NO_LIMIT)
    work(meter)
    assert meter.usage.reads == reads
    assert millions[0] * 0.95 <= meter.gas_used / M <= millions[1] * 1.05


@pytest.mark.parametrize(
    ("coin", "counts", "millions"), [(token(0), usage(1, 1, 0), 4.5), (NATIVE, usage(0, 0, 0), 4.0)]
)
def test_a_call_takes_its_base(coin: str, counts: Usage, millions: float) -> None:
    """A program without instructions takes 4.5 M and one transfer; EGLD that goes back counts nothing."""
    plan = Plan([])
    result = plan.run(coin, coin)
    assert (result.ok, result.usage) == (True, counts)
    assert millions * 0.95 <= plan.on_the_node(result) / M <= millions * 1.05


LARGEST = [
    (["off"], 49, (99, 99, 882), 413),
    (["collector"], 33, (100, 100, 760), 411),
    (["here"], 24, (97, 73, 649), 317),
    (["elsewhere"], 19, (96, 77, 837), 389),
    (["onedex"], 24, (97, 97, 227), 163),
    (["jex"], 33, (100, 100, 363), 170),
    (["stable"], 33, (100, 100, 561), 256),
    (["collector", "onedex", "jex"], 29, (98, 98, 431), 239),
    (["here", "onedex", "jex"], 27, (100, 91, 435), 227),
    (["here", "onedex", "jex", "stable"], 28, (99, 92, 460), 231),
]


@pytest.mark.parametrize(("mix", "n", "counts", "millions"), LARGEST, ids=["+".join(row[0]) for row in LARGEST])
def test_the_largest_plan_that_passes(mix: list[str], n: int, counts: tuple[int, int, int], millions: int) -> None:
    """As on the node: so many pools pass, with these counts and gas within 8 %; one more is a call too many."""
    sorts = [mix[number % len(mix)] for number in range(n + 1)]
    plan, result = run_chain(sorts[:n])
    assert result.ok, result.return_message
    assert result.usage == usage(*counts)
    assert 0.92 * millions <= plan.on_the_node(result) / M <= 1.08 * millions
    plan = chained(sorts)
    balances = {who: dict(account.tokens) for who, account in plan.state.ledger.accounts.items()}
    result = plan.run(token(0), token(n + 1))
    assert (result.ok, result.return_code, result.return_message) == (False, EXECUTION_FAILED, TOO_MANY_CALLS)
    assert result.usage.builtin_calls == 101
    assert {who: dict(account.tokens) for who, account in plan.state.ledger.accounts.items()} == balances


def test_a_limit_is_reached_before_the_minimum_is_looked_at() -> None:
    """A plan far too long ends at its 101st call, in the middle of its program."""
    _, result = run_chain(["jex"] * 40, minimum=10**30)
    assert (result.ok, result.return_message) == (False, TOO_MANY_CALLS)
    assert result.usage == usage(101, 100, 11 * 34)


def test_egld_takes_two_calls_on_its_way_in_and_one_on_its_way_out() -> None:
    """Wrapping mints and sends; unwrapping sends and burns, and saves the output's transfer."""
    pool = jex(0)
    counts = []
    for egld_in, egld_out in ((False, False), (True, False), (False, True)):
        plan = Plan([pool])
        if egld_in:
            plan.wrap(Action.WRAP)
        tokens = tuple(reversed(pool.tokens)) if egld_out else pool.tokens
        plan.swap(pool, *tokens)
        if egld_out:
            plan.wrap(Action.UNWRAP)
        result = plan.run(NATIVE if egld_in else tokens[0], NATIVE if egld_out else tokens[1])
        assert result.ok, result.return_message
        counts.append(result.usage)
    assert [used.builtin_calls for used in counts] == [4, 6, 5]
    assert [used.transfers for used in counts] == [4, 5, 4]


@pytest.mark.parametrize("sorts", [["off"], ["elsewhere", "jex"], ["onedex", "stable", "collector"]])
def test_a_plan_needs_exactly_its_gas(sorts: list[str]) -> None:
    """With one unit less it is out of gas, whatever its minimum; nothing else decides."""
    _, result = run_chain(sorts)
    assert run_chain(sorts, limit=result.gas_used)[1].ok
    _, short = run_chain(sorts, limit=result.gas_used - 1)
    assert (short.ok, short.return_code, short.gas_used) == (False, OUT_OF_GAS, result.gas_used - 1)
    assert short.return_message.startswith("not enough gas: insufficient funds for execution, gas limit ")
    assert short.return_message.endswith(f"needed at least {result.gas_used}")


def test_gas_runs_out_before_the_minimum_is_looked_at() -> None:
    """The program is metered in the order of its execution: a plan that cannot be paid for never reaches its end."""
    _, result = run_chain(["jex", "jex"])
    assert run_chain(["jex", "jex"], limit=result.gas_used, minimum=10**30)[1].return_code == EXECUTION_FAILED
    assert run_chain(["jex", "jex"], limit=result.gas_used * 2 // 3, minimum=10**30)[1].return_code == OUT_OF_GAS


@settings(max_examples=40, deadline=None)
@given(sorts=st.lists(st.sampled_from(sorted(SORTS)), min_size=1, max_size=6), depth=st.integers(0, 8))
def test_a_longer_program_takes_more(sorts: list[str], depth: int) -> None:
    """Every further pool takes gas, calls, transfers and reads; a deeper trie makes the reads dearer and no more."""
    _, one = run_chain(sorts, trie_depth=depth)
    _, more = run_chain([*sorts, "jex"], trie_depth=depth)
    _, deeper = run_chain(sorts, trie_depth=depth + 1)
    assert one.ok and more.ok and deeper.ok
    assert more.gas_used > one.gas_used
    assert more.usage.builtin_calls > one.usage.builtin_calls
    assert more.usage.transfers > one.usage.transfers
    assert more.usage.reads > one.usage.reads
    assert deeper.usage == one.usage
    assert deeper.gas_used - one.gas_used == one.usage.reads * (first_load(depth + 1) - first_load(depth))


@pytest.mark.parametrize(("sort", "again"), [(sort, int(sort == "onedex")) for sort in SORTS])
def test_a_pool_used_twice_is_read_once(sort: str, again: int) -> None:
    """The second swap in a pool reads nothing new; OneDex's roles alone are read every time."""
    pool = SORTS[sort](0)
    used = []
    for modes in ([ALL], [xo.fixed(0), ALL]):
        plan = Plan([pool])
        for mode in modes:
            plan.swap(pool, *pool.tokens, mode)
        result = plan.run(*pool.tokens, amounts=(AMOUNT // 2,))
        assert result.ok, result.return_message
        used.append(result)
    assert used[1].usage.reads - used[0].usage.reads == again
    assert used[1].usage.builtin_calls > used[0].usage.builtin_calls
    saved = 2 * used[0].gas_used - used[1].gas_used
    assert saved > used[0].usage.reads * (first_load(2) - 1_000) // 2


def test_a_trusted_pair_that_the_plan_uses_itself_is_read_once() -> None:
    """The fee is sold in a pair whose keys the plan knows: only that the seller is trusted is read in it."""
    selling = xexchange(0, "elsewhere")
    other = xexchange(1, "off", (ELSEWHERE, token(1)))
    ((_, address_),) = selling.trusted_pairs or ()
    other = msgspec.structs.replace(other, address=address_)
    meter = Meter(NO_LIMIT)
    gas.swap(meter, other, ELSEWHERE, AMOUNT)
    before = meter.usage.reads
    gas.swap(meter, selling, token(0), AMOUNT)
    assert meter.usage.reads - before == 44 + 1 - 16


@pytest.mark.parametrize(("make", "more"), [(lambda n: xexchange(n, "off"), -1), (onedex, 1), (jex, 0)])
def test_the_order_of_the_tokens_is_a_read_more_or_less(make: Callable[[int], Pool], more: int) -> None:
    """xExchange's router is asked for the output's pair first; OneDex looks for the sold token's first."""
    pool, reads = make(5), []
    for name in pool.tokens:
        meter = warm()
        before = meter.usage.reads
        gas.swap(meter, pool, name, AMOUNT)
        reads.append(meter.usage.reads - before)
    assert reads[1] - reads[0] == more


def test_every_loop_of_the_balancing_search_takes_gas() -> None:
    """A deposit of larger amounts needs more loops, each of one price; one that is in balance sells nothing."""
    pool, used = jex(0), []
    for loops in (10, 11):
        meter = Meter(NO_LIMIT)
        gas.deposit(meter, pool, 2, Balancing(loops, Asset(pool.tokens[0], 5), ()))
        used.append(meter)
    assert used[1].gas_used - used[0].gas_used == gas.LOOP
    balanced = Meter(NO_LIMIT)
    gas.deposit(balanced, pool, 2, Balancing(0, None, ()))
    assert balanced.usage.builtin_calls == used[0].usage.builtin_calls - 3


def deposit(scale: int) -> CallResult:
    """A deposit through the contract of far more of one token than of the other."""
    pool = jex(0)
    plan = Plan([pool])
    plan.swap(pool, *pool.tokens, xo.ppm(0))
    names = [plan.index(name) for name in pool.tokens]
    plan.instructions.append(xo.add(Action.JEX_ADD, names, ALL, plan.at(pool)))
    return plan.run(pool.tokens[0], pool.lp_token, amount=scale, amounts=(1_000,))


def test_a_deposit_through_the_contract_is_metered_loop_by_loop() -> None:
    """Amounts a thousand times as large take ten loops more of the search, and nothing else but what is left over."""
    small, large = deposit(10**16), deposit(10**19)
    assert small.ok and large.ok
    assert small.usage.reads <= large.usage.reads
    assert 8 * gas.LOOP <= large.gas_used - small.gas_used <= 12 * gas.LOOP + 2 * M


def test_the_fee_of_a_referral_is_booked() -> None:
    """The fee of an active referral reads 12 keys for a new token and 6 later; one that is unknown costs two reads."""
    pool, reads = jex(0), []
    plan = Plan([pool])
    plan.swap(pool, *pool.tokens)
    for referral in (0, 1, 1, 9):
        result = plan.run(*pool.tokens, referral=referral)
        assert result.ok, result.return_message
        reads.append(result.usage.reads)
    assert [count - reads[0] for count in reads] == [0, 12, 6, 2]


def test_each_exchange_has_a_price_and_none_is_free() -> None:
    """A program cannot contain work that costs nothing, and the longest one does not fit into a transaction."""
    for code in gas.CODE.values():
        for function in (code.swap, code.add, code.remove):
            assert function.compute > 0 and function.keys
    assert min(gas.INSTRUCTION, gas.LOOP, gas.WRAP) > 0
    assert 1024 * (gas.INSTRUCTION + TRANSFER) > 500 * M
    assert gas.XEXCHANGE.code == special_fee.PAIR_CODE


def direct(world: Any, pool: Pool) -> CallResult:
    """A swap in the pool's own contract."""
    first, second = pool.tokens[:2]
    of, to = first.encode(), second.encode()
    function, *args = {
        ("XExchange", "constant_product"): ("swapTokensFixedInput", to, b"\x01"),
        ("OneDex", "constant_product"): ("swapMultiTokensFixedInput", b"\x01", b"", of, to),
        ("Jex", "constant_product"): ("swapTokensFixedInput", b"\x01"),
        ("Jex", "stable"): ("swap", to, b"\x02"),
        ("AshSwap", "stable"): ("exchange", to, b"\x01"),
        ("AshSwap", "crypto"): ("exchange", b"\x01"),
    }[pool.exchange, pool.kind]
    result: CallResult = world.call(pool.address, function, *args, pay=[(first, pool.reserves[0] // 1000)])
    return result


@pytest.mark.parametrize("sort", gas.CODE)
def test_a_direct_call_saves_what_the_aggregator_contract_adds(world: Any, sort: tuple[str, str]) -> None:
    """A pool's own call makes one transfer less than the same swap in a plan, and no look-up in a router."""
    for pool in world.pools(*sort)[:5]:
        planned = Meter(NO_LIMIT)
        gas.swap(planned, pool, pool.tokens[0], pool.reserves[0] // 1000)
        result = direct(world, pool)
        assert result.ok, result.return_message
        assert result.usage.builtin_calls == planned.usage.builtin_calls - 1
        assert result.usage.transfers == planned.usage.transfers - 1
        assert result.usage.reads == planned.usage.reads - (2 if sort[0] == "XExchange" else 0)
        assert result.gas_used < planned.gas_used


def test_every_hop_of_onedex_own_route_is_metered(world: Any) -> None:
    """Within one call each pair sends its two fees and reads its own keys; the code is loaded once."""
    pools = world.pools("OneDex")
    pool, other = next(
        (one, other) for one in pools for other in pools if one is not other and other.tokens[0] == one.tokens[1]
    )
    path = [pool.tokens[0], pool.tokens[1], other.tokens[1]]
    pay = [(pool.tokens[0], pool.reserves[0] // 10_000)]
    args = (b"\x01", b"", *(name.encode() for name in path))
    result = world.call(pool.address, "swapMultiTokensFixedInput", *args, pay=pay)
    assert result.ok, result.return_message
    assert result.usage == usage(5, 5, 11 + 9 + 9)


def test_the_wrappers_own_calls(world: Any) -> None:
    """Wrapping mints and sends; unwrapping burns, and EGLD counts nothing."""
    wrapped = world.call(world.at.wrapper, "wrapEgld", pay=[(NATIVE, 10)])
    unwrapped = world.call(world.at.wrapper, "unwrapEgld", pay=[(WRAPPED, 10)])
    assert (wrapped.usage, unwrapped.usage) == (usage(2, 1, 2), usage(1, 0, 2))


def test_a_pool_of_three_tokens_reads_more() -> None:
    """Each token beyond two adds four keys and about 1.5 M to a swap, two keys to a withdrawal: estimated."""
    two = jex_stable(0)
    three = msgspec.structs.replace(
        two, tokens=(*two.tokens, "X-000001"), reserves=(RESERVE,) * 3, decimals=(18,) * 3, prices=(10**18,) * 3
    )
    for work, reads, millions in ((sell, 4, 1.5), (redeem, 2, 1.3)):
        meters = [Meter(NO_LIMIT), Meter(NO_LIMIT)]
        for meter, pool in zip(meters, (two, three), strict=True):
            work(pool)(meter)
        assert meters[1].usage.reads - meters[0].usage.reads == reads
        assert abs((meters[1].gas_used - meters[0].gas_used) / M - millions) < 0.1
