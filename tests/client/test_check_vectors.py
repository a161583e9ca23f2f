"""What services answer is compared as `tests/vectors/client_checks.json` says, which holds the other client, too."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

import msgspec
import pytest

from millrace_client import Mismatch, Transaction
from millrace_client.checks import checked_prepared
from millrace_client.messages import GasRules
from millrace_client.quotes import Quote
from millrace_client.swap_checks import Bounds, checked_quote

VECTORS = msgspec.json.decode((Path(__file__).parents[1] / "vectors" / "client_checks.json").read_bytes())


def changed(base: dict[str, Any], *changes: dict[str, Any]) -> dict[str, Any]:
    whole = dict(base)
    for change in changes:
        whole |= change
    return {name: value for name, value in whole.items() if value is not None}


def named(field: str | None, check: Any) -> None:
    if field is None:
        check()
        return
    with pytest.raises(Mismatch) as mismatch:
        check()
    assert mismatch.value.field == field


@pytest.mark.parametrize("case", VECTORS["quotes"], ids=lambda case: case["name"])
def test_quotes(case: dict[str, Any]) -> None:
    """A quote is signed, or the field that does not fit is named."""
    base = VECTORS["quote"]
    asked = changed(base["asked"], case.get("asked", {}))
    made = changed(base["transaction"], case.get("transaction", {}))
    made["data"] = b64encode(made.pop("call").encode()).decode()
    answer = changed(base["answer"], case.get("answer", {}), {"transaction": made})
    numbers = {
        name: int(asked[name]) for name in ("amountIn", "amountOut", "amountInMax", "amountOutMin") if name in asked
    }
    named(
        case["field"],
        lambda: checked_quote(
            msgspec.convert(answer, Quote, strict=False),
            sender=VECTORS["sender"],
            from_token=asked["from"],
            to_token=asked["to"],
            amount_in=numbers.get("amountIn"),
            amount_out=numbers.get("amountOut"),
            slippage=asked.get("slippage"),
            contract=case.get("contract"),
            bounds=Bounds(numbers.get("amountInMax"), numbers.get("amountOutMin")),
            referral_id=asked.get("referralId", 0),
        ),
    )


@pytest.mark.parametrize("case", VECTORS["prepared"], ids=lambda case: case["name"])
def test_prepared(case: dict[str, Any]) -> None:
    """What a relayer prepared is signed, or the field that does not fit is named."""
    base = VECTORS["prepare"]
    asked = changed(base["asked"], case.get("asked", {}))
    told = changed(asked, base["told"], case.get("told", {}))
    named(
        case["field"],
        lambda: checked_prepared(msgspec.convert(asked, Transaction), msgspec.convert(told, Transaction), GasRules()),
    )
