"""A typed client of POST /api/v1/multi-swap: every field that a live exchange's backend copies, none of them null."""

from __future__ import annotations

import msgspec


class Struct(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A missing or null field, or one of another type, is an error."""


class Swap(Struct):
    dex: str
    address: str
    from_: str = msgspec.field(name="from")
    to: str
    amount_in: str
    amount_out: str
    amount_in_short: float
    amount_out_short: float
    pair_id: int | msgspec.UnsetType = msgspec.UNSET


class Path(Struct):
    amount_in: str
    amount_out: str
    amount_in_short: float
    amount_out_short: float
    split_ppm: int
    swaps: list[Swap]


class Route(Struct):
    from_: str = msgspec.field(name="from")
    amount_in: str
    amount_in_short: float
    amount_out: str
    amount_out_short: float
    paths: list[Path]


class Input(Struct):
    token: str
    amount: str
    amount_short: float


class Failed(Input):
    reason: str


class Transaction(Struct):
    nonce: int
    value: str
    sender: str
    receiver: str
    gas_price: int
    gas_limit: int
    data: str
    version: int
    chain_id: str
    old_chain_id: str = msgspec.field(name="chainID")


class Batch(Struct):
    batch_index: int
    inputs: list[Input]
    amount_out: str
    amount_out_short: float
    amount_out_min: str
    amount_out_min_short: float
    routes: list[Route]
    tx_data: str
    transaction: Transaction


class Answer(Struct):
    """The top level. Of one batch, the last four are here, too."""

    to: str
    amount_out: str
    amount_out_short: float
    amount_out_min: str
    amount_out_min_short: float
    slippage: float
    fee_bps: int
    fee_amount: str
    fee_amount_short: float
    failed_tokens: list[Failed]
    batches: list[Batch]
    inputs: list[Input] | msgspec.UnsetType = msgspec.UNSET
    routes: list[Route] | msgspec.UnsetType = msgspec.UNSET
    tx_data: str | msgspec.UnsetType = msgspec.UNSET
    transaction: Transaction | msgspec.UnsetType = msgspec.UNSET
    search_cut: bool = False


def parse(body: bytes) -> Answer:
    """The answer, all fields there and all sums right."""
    answer = msgspec.json.decode(body, type=Answer)
    assert int(answer.amount_out) == sum(int(batch.amount_out) for batch in answer.batches)
    assert int(answer.amount_out_min) == sum(int(batch.amount_out_min) for batch in answer.batches)
    assert [batch.batch_index for batch in answer.batches] == list(range(len(answer.batches)))
    for batch in answer.batches:
        assert [route.from_ for route in batch.routes] == [given.token for given in batch.inputs]
        assert [route.amount_in for route in batch.routes] == [given.amount for given in batch.inputs]
        for route in batch.routes:
            check_route(route, answer.to)
    only = answer.batches[0] if len(answer.batches) == 1 else None
    top = (answer.inputs, answer.routes, answer.tx_data, answer.transaction)
    assert top == ((msgspec.UNSET,) * 4 if only is None else (only.inputs, only.routes, only.tx_data, only.transaction))
    return answer


def check_route(route: Route, to: str) -> None:
    """Paths add up to their input and output, and their swaps follow one another."""
    assert sum(int(path.amount_in) for path in route.paths) == int(route.amount_in)
    assert sum(int(path.amount_out) for path in route.paths) == int(route.amount_out)
    assert sum(path.split_ppm for path in route.paths) == 1_000_000
    for path in route.paths:
        assert path.swaps[0].from_ == route.from_
        assert path.swaps[-1].to == to
        assert [swap.from_ for swap in path.swaps[1:]] == [swap.to for swap in path.swaps[:-1]]
