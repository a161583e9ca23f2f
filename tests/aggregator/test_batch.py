"""Many inputs to one output: what each transaction says is what the contract pays on the pools it finds."""

from __future__ import annotations

import base64
import math
import random
from collections.abc import Callable, Generator
from decimal import Decimal
from functools import cache
from typing import TypeVar

import msgspec
import pytest

from clients.multi_swap import Answer, parse
from millrace.aggregator.batch import _Desk
from millrace.aggregator.batch_answers import batch_quote, multi_swap
from millrace.aggregator.batch_requests import (
    BatchItem,
    BatchRequest,
    MultiSwapRequest,
    make_order,
    multi_swap_order,
)
from millrace.aggregator.batch_responses import BatchResponse
from millrace.aggregator.errors import ApiError
from millrace.aggregator.query import QuoteRequest
from millrace.aggregator.quote import answer
from millrace.aggregator.responses import encode
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.snapshot import Snapshot, build
from millrace.chain import call
from millrace.chain.call import TokenPayment
from millrace.dex.aggregator_contract import decode_arguments
from millrace.dex.document import encode as written
from millrace.dex.vault import Referral, VaultError, VaultResult, execute
from millrace.routing.curve import NoCurve
from millrace.routing.plan import PlanError
from millrace.routing.planner import Planner
from synthetic import WRAPPED, make_market

USDC = "USDC-c76f1f"
MARKET = make_market(60, seed=17, noise=0.02, curved=0.2, traded_lp=5)
SETTINGS = AggregatorSettings()
SENDER = "erd1qqqqqqqqqqqqqpgq5rf2sppxk2xu4m0pkmugw2es4gak3rgjah0sxvajva"
TOKENS = [info.identifier for info in MARKET.tokens if not info.is_lp and info.identifier != USDC]
COARSE = next(info.identifier for info in MARKET.tokens if info.decimals == 18 and info.identifier in TOKENS[1:])
ONE_EACH = AggregatorSettings(inputs_per_transaction=1)
T = TypeVar("T")


@cache
def snapshot() -> Snapshot:
    return build(written(MARKET), 0.0)


def finished(parts: Generator[None, None, T]) -> T:
    """The answer, all its parts done."""
    while True:
        try:
            next(parts)
        except StopIteration as end:
            answer: T = end.value
            return answer


def batch(request: BatchRequest, settings: AggregatorSettings = SETTINGS, deadline: float = math.inf) -> BatchResponse:
    order = make_order(request, settings)
    return finished(batch_quote(snapshot(), snapshot().main, order, settings, deadline))


def swapped(request: MultiSwapRequest, settings: AggregatorSettings = SETTINGS, deadline: float = math.inf) -> Answer:
    """A multi-swap's answer, as its client reads it."""
    order = multi_swap_order(request, settings)
    return parse(encode(finished(multi_swap(snapshot(), snapshot().main, order, request.sender, settings, deadline))))


def asked(tokens: list[str], part: int, to: str = USDC, **changes: object) -> MultiSwapRequest:
    """A multi-swap of a part of what each token's deepest pool holds."""
    inputs = [BatchItem(token=token, amount=str(deepest(token) // part)) for token in tokens]
    return MultiSwapRequest(inputs=inputs, to=to, sender=SENDER, **changes)  # type: ignore[arg-type]


def deepest(token: str) -> int:
    name = WRAPPED if token == "EGLD" else token
    return max(pool.reserves[pool.index(name)] for pool in MARKET.pools if name in pool.tokens)


def performed(answer: Answer, referral: Referral | None = None) -> list[VaultResult]:
    """What the contract does with the batches, one after the other on the pools that each finds."""
    market, results = snapshot().market, []
    for sent in answer.batches:
        data = call.parse(sent.tx_data.encode())
        assert (data.function, base64.b64encode(sent.tx_data.encode()).decode()) == (
            "MultiESDTNFTTransfer",
            sent.transaction.data,
        )
        assert (sent.transaction.sender, sent.transaction.receiver, sent.transaction.value) == (SENDER, SENDER, "0")
        program = decode_arguments(data.args[2 + 3 * len(sent.inputs) + 1 :])
        assert program.min_amount_out == int(sent.amount_out_min)
        payments = [TokenPayment(given.token, 0, int(given.amount)) for given in sent.inputs]
        results.append(execute(program, payments, market, referral))
        market = market.left_by(results[-1].pools)
    return results


@pytest.mark.parametrize("seed", range(12))
def test_batches_sent_one_after_the_other_pay_what_they_say(seed: int) -> None:
    """A later batch is quoted on the pools as the earlier ones leave them, with inputs that move them far."""
    dice = random.Random(seed)
    to = dice.choice([USDC, "EGLD", WRAPPED, TOKENS[3]])
    tokens = [token for token in dice.sample([*TOKENS, "EGLD"], 14) if token != to]
    settings = AggregatorSettings(inputs_per_transaction=dice.choice([1, 3, 10]))
    answer = swapped(asked(tokens, dice.choice([5, 100, 10**5]), to), settings)
    assert len(answer.batches) > 1
    assert max(len(sent.inputs) for sent in answer.batches) <= settings.inputs_per_transaction
    paid = [result.amount_out for result in performed(answer)]
    assert paid == [int(sent.amount_out) for sent in answer.batches]


def test_others_have_a_turn_while_a_transaction_is_planned_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The new graph is a part of its own, as are the paths found in it: neither comes with another in one turn."""
    since_turn: list[str] = []
    together: list[list[str]] = []

    def noted(name: str, call: Callable[..., object]) -> Callable[..., object]:
        def noting(*arguments: object) -> object:
            since_turn.append(name)
            return call(*arguments)

        return noting

    monkeypatch.setattr(Snapshot, "plan_on", noted("graph", Snapshot.plan_on))
    monkeypatch.setattr(_Desk, "_find_again", noted("paths", _Desk._find_again))
    request = asked(TOKENS, 30)
    parts = multi_swap(snapshot(), snapshot().main, multi_swap_order(request, SETTINGS), SENDER, SETTINGS, math.inf)
    for _ in parts:
        together.append([*since_turn])
        since_turn.clear()
    assert ["graph"] in together and ["paths"] in together
    assert max(map(len, together)) == 1


def test_an_input_whose_pools_have_moved_goes_another_way() -> None:
    """Two large inputs over the same pools: the second is planned anew, and pays more than its first plan would."""
    settings = AggregatorSettings(inputs_per_transaction=1)
    tokens = TOKENS[:8]
    answer = swapped(asked(tokens, 4), settings)
    hasty = swapped(asked(tokens, 4), settings, deadline=Hasty(len(tokens)))
    assert [sent.inputs for sent in hasty.batches] == [sent.inputs for sent in answer.batches]
    assert [result.amount_out for result in performed(hasty)] == [int(sent.amount_out) for sent in hasty.batches]
    assert int(answer.amount_out) > int(hasty.amount_out)
    assert (answer.search_cut, hasty.search_cut) == (False, True)


@pytest.mark.parametrize("mended", [True, False])
def test_what_is_planned_anew_keeps_to_the_pools_that_are_allowed(
    monkeypatch: pytest.MonkeyPatch, mended: bool
) -> None:
    """A filter holds for the market as earlier batches leave it, too: on the same graph and on a new one."""
    if not mended:
        monkeypatch.setattr(Planner, "moved", lambda *_: no_curve())
    again: list[int] = []
    find_again = _Desk._find_again
    monkeypatch.setattr(_Desk, "_find_again", lambda *args: again.append(1) or find_again(*args))
    plain = performed(swapped(asked(TOKENS[:8], 4), ONE_EACH))
    barred = sorted({pool for result in plain for pool in result.pools})[:30:2]
    again.clear()
    order = multi_swap_order(asked(TOKENS[:8], 4, exclude_pools=barred), ONE_EACH)
    planner = snapshot().make(order.chosen)
    answer = parse(encode(finished(multi_swap(snapshot(), planner, order, SENDER, ONE_EACH, math.inf))))
    results = performed(answer)
    assert [result.amount_out for result in results] == [int(sent.amount_out) for sent in answer.batches]
    assert len(results) > 3 and len(again) > 3
    assert not {pool for result in results for pool in result.pools}.intersection(barred)


A_SECOND_FOR_TEN_THOUSAND = 60 * 1e-4
"""What each of this market's pools has of the time, as in one of ten thousand that has the default deadline."""


def test_large_markets_have_time_to_plan_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the default deadline later batches are planned on what the earlier ones left also in 10 000 pools."""
    monkeypatch.setattr("millrace.aggregator.batch.time.monotonic", lambda: 0.0)
    assert SETTINGS.quote_deadline_seconds == 1.0
    settings = AggregatorSettings(inputs_per_transaction=1)
    answer = swapped(asked(TOKENS[:8], 4), settings, deadline=A_SECOND_FOR_TEN_THOUSAND)
    assert answer == swapped(asked(TOKENS[:8], 4), settings)
    assert answer.search_cut is False


def test_a_graph_is_not_built_from_nothing_without_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the old one cannot be mended a new one takes longer: there must be time for that as well."""
    monkeypatch.setattr("millrace.aggregator.batch.time.monotonic", lambda: 0.0)
    monkeypatch.setattr(Planner, "moved", lambda *_: no_curve())
    settings = AggregatorSettings(inputs_per_transaction=1)
    late, early = (swapped(asked(TOKENS[:8], 4), settings, A_SECOND_FOR_TEN_THOUSAND * part) for part in (0.9, 1.1))
    assert (late.search_cut, early.search_cut) == (True, False)
    for found in (late, early):
        assert [result.amount_out for result in performed(found)] == [int(sent.amount_out) for sent in found.batches]
    assert int(early.amount_out) > int(late.amount_out)


def no_curve() -> None:
    raise NoCurve("a pool takes no trades any more")


class Hasty(float):
    """A deadline that has not passed for so many looks at it: time for the first plans of inputs, and no other."""

    left: int

    def __new__(cls, inputs: int) -> Hasty:
        made = super().__new__(cls, math.inf)
        made.left = 2 * inputs  # each is looked at before its turn and in it
        return made

    def __ge__(self, now: object) -> bool:
        return self._look()

    def __gt__(self, now: object) -> bool:
        return self._look()

    def __lt__(self, now: object) -> bool:
        return not self._look()

    def _look(self) -> bool:
        self.left -= 1
        return self.left >= 0


def test_inputs_that_share_pools_are_planned_together_and_pay_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never less than one after the other, and 1 bp more in the mean where they share pools, in a fair market."""
    made = make_market(120, seed=4)
    fair = build(written(made), 0.0)
    names = [info.identifier for info in made.tokens if info.identifier != USDC and not info.is_lp]
    held = {token: max(p.reserves[p.index(token)] for p in made.pools if token in p.tokens) for token in names}
    dice = random.Random(9)
    requests = []
    for _ in range(40):
        part = dice.choice([20, 100, 1000])
        inputs = [BatchItem(token=token, amount=str(held[token] // part)) for token in dice.sample(names, 4)]
        requests.append(make_order(BatchRequest(inputs=inputs, to=USDC), SETTINGS))

    def paid() -> list[int]:
        answers = [finished(batch_quote(fair, fair.main, order, SETTINGS, math.inf)) for order in requests]
        return [int(answer.amount_out) if len(answer.batches) == 1 else 0 for answer in answers]

    together = paid()
    shared: list[bool] = []
    monkeypatch.setattr(Planner, "joint_sale", lambda *_: shared.append(True) or refuse())
    apart = []
    for order in requests:
        shared.clear()
        answer = finished(batch_quote(fair, fair.main, order, SETTINGS, math.inf))
        apart.append((int(answer.amount_out) if len(answer.batches) == 1 else 0, bool(shared)))
    pairs = [(joint, alone, share) for joint, (alone, share) in zip(together, apart, strict=True) if joint and alone]
    assert all(joint >= alone for joint, alone, _ in pairs)
    gains = [joint / alone - 1.0 for joint, alone, share in pairs if share]
    assert len(gains) >= 10
    assert sum(gains) / len(gains) >= 1e-4


def refuse() -> None:
    raise PlanError("not together")


@pytest.mark.parametrize("to", [USDC, "EGLD"])
def test_of_what_is_sold_together_each_input_has_its_part(to: str) -> None:
    """Routes add up to the batch's output, and each sells its own input to the last unit, EGLD and WEGLD too."""
    tokens = ["EGLD", WRAPPED, *TOKENS[:5]] if to == USDC else TOKENS[:6]
    answer = swapped(asked(list(dict.fromkeys(tokens)), 10**4, to))
    for sent in answer.batches:
        assert sum(int(route.amount_out) for route in sent.routes) == int(sent.amount_out)
        for given, route in zip(sent.inputs, sent.routes, strict=True):
            assert (route.from_, route.amount_in) == (given.token, given.amount)
            assert sum(int(path.amount_in) for path in route.paths) == int(given.amount)
            assert sum(int(path.amount_out) for path in route.paths) == int(route.amount_out)


def test_a_hundred_inputs_are_answered() -> None:
    """As many as the documented bound; each is in a batch or named with its reason, none in both."""
    names = [*TOKENS, "EGLD", *(pool.lp_token for pool in MARKET.pools)]
    tokens = list(dict.fromkeys(names))[:99]
    inputs = [BatchItem(token=token, amount="1000000000000") for token in tokens] + [
        BatchItem(token="NO-1", amount="1")
    ]
    answer = swapped(MultiSwapRequest(inputs=inputs, to=USDC, sender=SENDER))
    sold = [given.token for sent in answer.batches for given in sent.inputs]
    failed = [given.token for given in answer.failed_tokens]
    assert sorted(sold + failed) == sorted(item.token for item in inputs)
    assert len(sold) > 50
    assert [result.amount_out for result in performed(answer)] == [int(sent.amount_out) for sent in answer.batches]


def test_one_batch_is_on_the_top_level_as_well() -> None:
    """A single transaction's inputs, routes, data and transaction are where the live service puts them."""
    answer = swapped(asked(TOKENS[:2], 10**4))
    assert len(answer.batches) == 1
    assert answer.tx_data == answer.batches[0].tx_data
    assert answer.transaction == answer.batches[0].transaction


def test_without_a_sender_there_is_no_transaction() -> None:
    """Everything else is there: the receiver of a multi-transfer is its sender, whom nobody has named."""
    request = asked(TOKENS[:2], 10**4)
    order = multi_swap_order(request, SETTINGS)
    made = finished(multi_swap(snapshot(), snapshot().main, order, "", SETTINGS, math.inf))
    assert b'"transaction"' not in encode(made)
    assert made.batches[0].tx_data


def test_a_referral_is_charged_as_the_contract_does() -> None:
    """Its fee is taken off every batch's output, and the sums say so."""
    settings = AggregatorSettings(referrals={"7": (10, 25)}, inputs_per_transaction=2)
    answer = swapped(asked(TOKENS[:5], 10**3, referral_id=7), settings)
    results = performed(answer, Referral(7, 10, 25))
    assert [result.amount_out for result in results] == [int(sent.amount_out) for sent in answer.batches]
    assert int(answer.fee_amount) == sum(result.static_fee + result.referral_fee for result in results) > 0
    assert answer.fee_bps == 35


def test_a_referral_that_takes_everything_leaves_nothing_to_sell() -> None:
    """No transaction for nothing: the inputs are named, or the first of them refuses the request."""
    settings = AggregatorSettings(referrals={"7": (4_000, 6_000)})
    answer = swapped(asked(TOKENS[:3], 10**3, referral_id=7), settings)
    assert (answer.batches, {failed.reason for failed in answer.failed_tokens}) == ([], {"zero_liquidity"})
    with pytest.raises(ApiError, match="simulation failed"):
        swapped(asked(TOKENS[:3], 10**3, referral_id=7, dust_mode=False), settings)


BAD = [
    ("NOPE-123456", "5", "unknown_token", "unknown token_in 'NOPE-123456'"),
    (WRAPPED, "0", "invalid_amount", "invalid amount_in: expected unsigned integer amount"),
    (WRAPPED, "1.5", "invalid_amount", "invalid amount_in: expected unsigned integer amount"),
    (WRAPPED, "9" * 79, "invalid_amount", "invalid amount_in: expected unsigned integer amount"),
    (TOKENS[0], "77", "duplicate_token", f"duplicate token_in '{TOKENS[0]}'"),
    (USDC, "5", "same_token", f"token_in '{USDC}' is the output token"),
    (COARSE, "1", "zero_liquidity", "simulation failed"),
]


@pytest.mark.parametrize(("token", "amount", "reason", "words"), BAD)
def test_an_input_that_cannot_be_sold_is_named_or_refuses_the_request(
    token: str, amount: str, reason: str, words: str
) -> None:
    """With `dust_mode` the rest is answered; without it the request has the documented words."""
    inputs = [BatchItem(token=TOKENS[0], amount=str(10**15)), BatchItem(token=token, amount=amount)]
    request = MultiSwapRequest(inputs=inputs, to=USDC, sender=SENDER)
    answer = swapped(request)
    assert [(failed.token, failed.amount, failed.reason) for failed in answer.failed_tokens] == [
        (token, amount[:80], reason)
    ]
    assert [given.token for sent in answer.batches for given in sent.inputs] == [TOKENS[0]]
    strict = MultiSwapRequest(inputs=inputs, to=USDC, sender=SENDER, dust_mode=False)
    with pytest.raises(ApiError, match="^" + words.replace("(", "[(]")):
        swapped(strict)


def test_an_input_without_a_path_is_told_from_one_too_small() -> None:
    """A pair that no pool path of the allowed length connects is `no_path`, and without `dust_mode` its words."""
    far = next(token for token in TOKENS if len(snapshot().main.router.short_path(token, USDC)) > 1)
    request = MultiSwapRequest(inputs=[BatchItem(token=far, amount=str(10**18))], to=USDC, max_hops=1)
    order = multi_swap_order(request, SETTINGS)
    made = finished(multi_swap(snapshot(), snapshot().main, order, "", SETTINGS, math.inf))
    assert [failed.reason for failed in made.failed_tokens] == ["no_path"]
    with pytest.raises(ApiError, match="routing failed: no path between tokens"):
        swapped(MultiSwapRequest(inputs=request.inputs, to=USDC, max_hops=1, dust_mode=False))


def test_a_huge_amount_is_an_answer_or_a_reason() -> None:
    """More than any market holds: what the contract would pay for it, or why it would not."""
    inputs = [BatchItem(token=token, amount="9" * 78) for token in TOKENS[:6]]
    answer = swapped(MultiSwapRequest(inputs=inputs, to=USDC, sender=SENDER))
    assert [result.amount_out for result in performed(answer)] == [int(sent.amount_out) for sent in answer.batches]
    assert len(answer.failed_tokens) + sum(len(sent.inputs) for sent in answer.batches) == 6


def test_nothing_that_can_be_sold_is_an_answer_with_reasons() -> None:
    """No batch, zero output, and every field that a client reads."""
    answer = swapped(MultiSwapRequest(inputs=[BatchItem(token="NO-1", amount="1")], to=USDC, sender=SENDER))
    assert (answer.batches, answer.amount_out) == ([], "0")


def test_a_batch_takes_lp_tokens_and_wraps() -> None:
    """LP inputs are redeemed and sold, wrapped tokens unwrapped, in one call with others."""
    issuer = next(pool for pool in MARKET.pools if WRAPPED not in pool.tokens)
    items = [
        BatchItem(token=issuer.lp_token, amount=str(issuer.lp_supply // 10**4)),
        BatchItem(token=WRAPPED, amount="12345"),
    ]
    found = batch(BatchRequest(inputs=items, to="EGLD", slippage="0"))
    assert found.failed_tokens == []
    routes = {route.token: route.swaps for batch in found.batches for route in batch.routes}
    assert routes[issuer.lp_token][0].from_ == issuer.lp_token
    assert [(swap.dex, swap.amount_out) for swap in routes[WRAPPED]] == [("wrapper", "12345")]
    assert sum(int(batch.amount_out) for batch in found.batches) > 12345
    swapped(MultiSwapRequest(inputs=items, to="EGLD", sender=SENDER))


@pytest.mark.parametrize("shrunk", [1, 10**4])
def test_an_lp_token_that_a_pool_trades_is_redeemed_where_that_pays_more(shrunk: int) -> None:
    """Whoever opens a small pool of an LP token does not get those sold into it that redeeming pays more for."""
    trading = MARKET.pools[-1]
    small = msgspec.structs.replace(trading, reserves=tuple(reserve // shrunk for reserve in trading.reserves))
    market = msgspec.structs.replace(MARKET, pools=(*MARKET.pools[:-1], small))
    here = build(written(market), 0.0)
    token = next(token for token in trading.tokens if any(pool.lp_token == token for pool in MARKET.pools))
    issuer = next(pool for pool in MARKET.pools if pool.lp_token == token)
    amount = str(issuer.lp_supply // 2)
    alone = answer(here, QuoteRequest(token_in=token, token_out=USDC, amount_in=int(amount)), SETTINGS)
    order = make_order(BatchRequest(inputs=[BatchItem(token=token, amount=amount)], to=USDC, slippage="0"), SETTINGS)
    found = finished(batch_quote(here, here.main, order, SETTINGS, math.inf))
    assert int(found.batches[0].amount_out) >= int(alone.amount_out) * 0.98, "its legs can follow others, and cost that"


@pytest.mark.parametrize("number", [0, 7, 15, 33, 40])
def test_lp_tokens_as_output_are_minted_one_input_a_transaction(number: int) -> None:
    """A deposit ends a call, so inputs share none; tokens of the pool, others, EGLD and other LP tokens are taken."""
    pool, other = MARKET.pools[number], MARKET.pools[number + 1]
    tokens = ["EGLD", *dict.fromkeys([*pool.tokens, *TOKENS[:3]])]
    inputs = [BatchItem(token=token, amount=str(deepest(token) // 1000)) for token in tokens]
    inputs.append(BatchItem(token=other.lp_token, amount=str(other.lp_supply // 1000)))
    answer = swapped(MultiSwapRequest(inputs=inputs, to=pool.lp_token, sender=SENDER))
    assert answer.failed_tokens == []
    assert [len(sent.inputs) for sent in answer.batches] == [1] * len(inputs)
    assert [result.amount_out for result in performed(answer)] == [int(sent.amount_out) for sent in answer.batches]
    for sent in answer.batches:
        assert sum(int(path.amount_out) for route in sent.routes for path in route.paths) == int(sent.amount_out)


def test_a_batch_past_its_deadline_says_so() -> None:
    """Items for which no time is left are listed with a reason, and nothing else happens."""
    found = batch(BatchRequest(inputs=[BatchItem(token=WRAPPED, amount="12345")], to=USDC), deadline=0.0)
    assert [failed.reason for failed in found.failed_tokens] == ["out_of_time"]
    assert found.batches == []
    assert found.search_cut is True


def test_inputs_share_a_transaction_only_as_far_as_it_has_room() -> None:
    """Every batch holds the limits, also a lower one that is asked for, and then there are more of them."""
    inputs = [BatchItem(token=token, amount=str(10**15)) for token in TOKENS[:20]]

    def batches(calls: int) -> list[tuple[int, int]]:
        done = batch(BatchRequest(inputs=inputs, to=USDC, max_builtin_calls=calls))
        assert all(batch.estimated_builtin_calls <= min(calls, SETTINGS.max_builtin_calls) for batch in done.batches)
        assert all(batch.estimated_gas_limit <= SETTINGS.max_gas for batch in done.batches)
        return [(len(batch.inputs), batch.estimated_builtin_calls) for batch in done.batches]

    many, few = batches(100), batches(16)
    assert len(few) > len(many) >= 2
    assert sum(count for count, _ in few) >= 0.6 * sum(count for count, _ in many)


def test_the_last_look_at_a_transaction_is_at_the_limit_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where planning misjudges what fits together, no batch has more built-in calls than the request allows."""
    monkeypatch.setattr("millrace.aggregator.batch._Room.fits", lambda *_: True)
    inputs = [BatchItem(token=token, amount=str(10**15)) for token in TOKENS[:20]]
    done = batch(BatchRequest(inputs=inputs, to=USDC, max_builtin_calls=16))
    assert len(done.batches) > 2
    assert max(batch.estimated_builtin_calls for batch in done.batches) <= 16


def test_wrapping_and_unwrapping_hold_the_built_in_calls_asked_for() -> None:
    """An input that only is wrapped or unwrapped takes calls, too: with too few of them there is no path."""
    for token, to in ((WRAPPED, "EGLD"), ("EGLD", WRAPPED)):
        inputs = [BatchItem(token=token, amount="12345")]
        needed = batch(BatchRequest(inputs=inputs, to=to)).batches[0].estimated_builtin_calls
        assert batch(BatchRequest(inputs=inputs, to=to, max_builtin_calls=needed)).batches
        if needed > 1:
            done = batch(BatchRequest(inputs=inputs, to=to, max_builtin_calls=needed - 1))
            assert not done.batches
            assert b'"no_path"' in encode(done)


@pytest.mark.parametrize("calls", [0, 101, -1])
def test_a_batch_refuses_built_in_calls_out_of_range(calls: int) -> None:
    """From 1 to 100, as for a quote."""
    request = BatchRequest(inputs=[BatchItem(token=WRAPPED, amount="1")], to=USDC, max_builtin_calls=calls)
    with pytest.raises(ApiError, match="invalid maxBuiltinCalls: expected an integer from 1 to 100"):
        batch(request)


def test_a_minimum_above_what_is_paid_reverts() -> None:
    """The minimum of each batch is its own: the contract holds it against that batch's output alone."""
    answer = swapped(asked(TOKENS[:4], 10**3, slippage="0"), AggregatorSettings(inputs_per_transaction=2))
    sent = answer.batches[1]
    program = decode_arguments(call.parse(sent.tx_data.encode()).args[2 + 3 * len(sent.inputs) + 1 :])
    fewer = [TokenPayment(given.token, 0, int(given.amount) * 9 // 10) for given in sent.inputs]
    with pytest.raises(VaultError, match=r"Slippage limit exceeded|Insufficient vault balance"):
        execute(program, fewer, snapshot().market)
    assert Decimal(str(answer.slippage)) == 0
