"""Random multi-swaps as a live exchange's backend asks for them: no field is missing, and the chain pays what they say.

Asked over HTTP, and every batch carried out on the local chain's contracts, one after the other, with its own gas
limit. `MILLRACE_TEST_MULTI_SWAPS` sets how many are asked in all (default 60; 10000 in the long form).
"""

from __future__ import annotations

import base64
import os
import random
import re
from collections import Counter
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from clients.multi_swap import Answer, parse
from clients.on_chain import TRADER, amount_of, run, scene
from millrace.chain.address import encode
from millrace.chain.amount import apply_slippage
from millrace.chain.token import NATIVE
from millrace.localnet.market.market import WRAPPED
from millrace_client.quotes import MultiSwap
from millrace_client.swap_checks import checked_multi_swap
from servers.aggregator_service import end, start

REQUESTS = int(os.environ.get("MILLRACE_TEST_MULTI_SWAPS", "60"))
PER_TRANSACTION = [1, 4, 10]
SENDER = encode(TRADER)
FEES = {"1": (10, 20)}  # what the local chain's contract has on file; its other referral is switched off
NO_INPUTS = [
    ("NOPE-123456", "5", "unknown_token"),
    ("", "5", "unknown_token"),
    ("x" * 500, "5", "unknown_token"),
    *((None, text, "invalid_amount") for text in ("0", "", "-3", "1e5", "0x10", "1.5", "9" * 90)),
]
"""Token (None: any), amount, and the reason for which such an input is left out."""
REASONS = {
    "unknown_token",
    "invalid_amount",
    "duplicate_token",
    "same_token",
    "no_path",
    "zero_liquidity",
    "out_of_time",
}
REFUSED = re.compile(
    r"unknown token_(in|out) '|invalid amount_in: expected unsigned|duplicate token_in '|token_in '.*' is the output"
    r"|routing failed: no path between tokens|simulation failed|service unavailable"
)
"""What is said of inputs that cannot be sold and may not be left out."""


def request(dice: random.Random) -> tuple[dict[str, Any], Counter[str]]:
    """A random request, and how often each reason is certain to come among its inputs."""
    made = scene().market
    names = [token.identifier for token in made.tokens]
    every = [*names, NATIVE, *made.lp_tokens]
    to = dice.choice([*names[:10], *names[:10], NATIVE, dice.choice(names), dice.choice(list(made.lp_tokens))])
    common = dice.random() < 0.4  # the most traded tokens share pools
    count = dice.choices([1, 2, 3, 6, 12, 25, 96], [20, 15, 20, 20, 15, 8, 2])[0]
    pool = [name for name in (names[:14] if common else every) if name != to]
    tokens = dice.sample(pool, min(count, len(pool)))
    inputs = [(token, str(amount(token, dice))) for token in tokens]
    certain: Counter[str] = Counter()
    if dice.random() < 0.3:
        for token, text, reason in dice.sample(NO_INPUTS, 2):
            inputs.append((dice.choice(every) if token is None else token, text))
            certain[reason] += 1
    if dice.random() < 0.1:
        inputs.append((to, "1000000"))
        certain["same_token"] += 1
    if dice.random() < 0.1:
        inputs.append(inputs[0])
        certain["duplicate_token"] += 1
    body: dict[str, Any] = {
        "inputs": [{"token": token, "amount": text} for token, text in inputs],
        "to": to,
        "slippage": dice.choice([0, 0, "0", 0.01, "0.005", 0.5, 1e-05, "0.123456789"]),
        "sender": SENDER,
    }
    more = {
        "dust_mode": dice.random() < 0.6,
        "referralId": dice.choice([0, 1, 2, 3]),
        "maxHops": dice.choice([1, 2, 4]),
    }
    more["maxBuiltinCalls"] = dice.choice([98, 40, 12])
    return body | {name: value for name, value in more.items() if dice.random() < 0.5}, certain


def amount(token: str, dice: random.Random) -> int:
    """An amount up to a tenth of the deepest pool, sometimes a few units, or many times what there is."""
    kind = dice.random()
    if kind < 0.1:
        return dice.randrange(1, 1000)
    huge = kind > 0.97 and token != WRAPPED  # of that there is as much as the wrapper holds EGLD
    return amount_of(token, dice) * (10 ** dice.randrange(1, 12) if huge else 1)


def check_inputs(asked: dict[str, Any], answer: Answer, certain: Counter[str]) -> None:
    """Each input is in one batch, with its amount, or among those left out, with the reason."""
    sold = Counter((given.token, given.amount) for batch in answer.batches for given in batch.inputs)
    left = Counter((failed.token, failed.amount) for failed in answer.failed_tokens)
    assert sold + left == Counter((given["token"][:64], given["amount"][:80]) for given in asked["inputs"])
    reasons = Counter(failed.reason for failed in answer.failed_tokens)
    assert reasons.keys() <= REASONS, reasons
    assert certain <= reasons, (certain, reasons)


def carry_out(asked: dict[str, Any], answer: Answer, fee_bps: int) -> int:
    """Send the batches one after the other; each pays exactly its amount and no more than its gas. How many."""
    state = scene().state
    checkpoint = state.ledger.checkpoint()
    fees = 0
    for number, batch in enumerate(answer.batches):
        sold = {given.token: int(given.amount) for given in batch.inputs}
        sent = batch.transaction
        assert (sent.nonce, sent.sender, sent.receiver, sent.value) == (number, SENDER, SENDER, "0")
        assert (sent.chain_id, sent.old_chain_id) == ("local", "local")
        assert base64.b64decode(sent.data).decode() == batch.tx_data
        result, gained = run(sent.data, sent.gas_limit, sold, answer.to, batch=True)
        assert result.ok, f"{sold} to {answer.to}: {result.return_message}"
        assert gained == int(batch.amount_out), (asked, number)
        assert int(batch.amount_out_min) == apply_slippage(gained, Decimal(str(asked["slippage"])))
        before_fee = sum(int(route.amount_out) for route in batch.routes)
        fees += before_fee - gained
    assert fees == int(answer.fee_amount)
    assert (fees > 0) <= (fee_bps > 0)
    state.ledger.rollback(checkpoint)
    return len(answer.batches)


def accepted_by_our_client(asked: dict[str, Any], body: bytes) -> None:
    """The Python client's own look at what it would sign."""
    given: Counter[str] = Counter()
    for item in asked["inputs"]:
        given[item["token"]] += int(item["amount"]) if item["amount"].isdecimal() else 0
    checked_multi_swap(
        msgspec.json.decode(body, type=MultiSwap, strict=False),
        sender=SENDER,
        inputs=given,
        to_token=asked["to"],
        slippage=asked["slippage"],
        contract=None,
        referral_id=asked.get("referralId", 0),
    )


@pytest.mark.timeout(900 + REQUESTS)
@pytest.mark.parametrize("inputs_per_transaction", PER_TRANSACTION)
async def test_a_multi_swap_pays_what_its_client_reads(inputs_per_transaction: int) -> None:
    """Every answer has every field and names every input; its transactions, sent in their order, pay exactly that."""
    dice = random.Random(f"multi-swap/{inputs_per_transaction}")
    service, *rest = await start(
        chain_id="local",
        inputs_per_transaction=inputs_per_transaction,
        referrals=FEES,
        requests_per_second=10_000,
        client_search_seconds=2.0,  # all there is
        quote_deadline_seconds=10.0,
        document=scene().document,
    )
    seen: Counter[str] = Counter()
    try:
        await service.until("/health", 200)
        for _ in range(-(-REQUESTS // len(PER_TRANSACTION))):
            asked, certain = request(dice)
            async with service.session.post(service.base + "/api/v1/multi-swap", json=asked) as response:
                status, body = response.status, await response.read()
            if status != 200:
                assert asked.get("dust_mode") is False, (asked, body)
                assert (status in (400, 503), list(msgspec.json.decode(body))) == (True, ["error"])
                assert REFUSED.search(msgspec.json.decode(body)["error"]), body
                seen["refused"] += 1
                continue
            answer = parse(body)
            fee_bps = sum(FEES.get(str(asked.get("referralId", 0)), (0, 0)))
            assert (answer.to, answer.slippage, answer.fee_bps) == (asked["to"], float(asked["slippage"]), fee_bps)
            seen["cut short"] += answer.search_cut  # a hundred transactions may take more than a client's share
            check_inputs(asked, answer, certain)
            accepted_by_our_client(asked, body)
            seen["batches"] += carry_out(asked, answer, fee_bps)
            seen["answered"] += 1
            seen["left out"] += len(answer.failed_tokens)
            seen["several inputs"] += any(len(batch.inputs) > 1 for batch in answer.batches)
    finally:
        await end(service, *rest)
    print(f"{inputs_per_transaction} inputs a transaction: {dict(seen)}")
    assert seen["batches"] >= seen["answered"] > seen["refused"] > 0 < seen["left out"]
    assert bool(seen["several inputs"]) == (inputs_per_transaction > 1)
