"""Amounts in the page are exact: what is typed, what is shown, and what is asked for."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.foreign.console.conftest import Open

pytestmark = [pytest.mark.foreign, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]
TYPED = [
    ("1", 6, "1000000"),
    ("2,500.75", 6, "2500750000"),
    ("1,234,567", 0, "1234567"),
    ("0.000001", 6, "1"),
    (".5", 2, "50"),
    ("5.", 2, "500"),
    ("1.5000000", 2, "150"),
    ("115792089237316195423570985008687907853", 18, "115792089237316195423570985008687907853" + "0" * 18),
    ("1,5", 6, None),
    ("12,34", 6, None),
    ("1,2345", 6, None),
    (",123", 6, None),
    ("1.2345678", 6, None),
    ("1.5", 0, None),
    ("", 6, None),
    (".", 6, None),
    ("-1", 6, None),
    ("1e3", 6, None),
    ("0x10", 6, None),
    ("١", 6, None),
]
SHOWN = [
    ("0", 18, 6, "0"),
    ("1234567", 6, 6, "1.234567"),
    ("999999", 6, 2, "0.99"),
    ("1234567890123", 6, 2, "1,234,567.89"),
    ("1", 18, 4, "0.000000000000000001"),
    ("123456789", 18, 4, "0.000000000123"),
    ("-2500000", 6, 2, "−2.5"),
]


async def test_amounts(open_page: Open) -> None:
    """Nothing is rounded up, nothing is read as another number, and what is shown whole is read as what it was."""
    page = await open_page("network")
    chance = random.Random(1)
    pairs = [(str(chance.randrange(10 ** chance.randrange(1, 40))), chance.randrange(19)) for _ in range(2_000)]
    typed, shown, back = json.loads(
        await page.value(
            f"""import("/lib/format.js").then(({{ amount, grouped, units }}) => JSON.stringify([
              {json.dumps(TYPED)}.map(([text, decimals]) => units(text, decimals)?.toString() ?? null),
              {json.dumps(SHOWN)}.map(([text, decimals, digits]) => amount(text, decimals, digits)),
              {json.dumps(pairs)}.map(([text, of]) => String(units(grouped(amount(text, of, 18)), of))),
            ]))"""
        )
    )
    assert typed == [wanted for _, _, wanted in TYPED]
    assert shown == [wanted for *_, wanted in SHOWN]
    assert back == [text for text, _ in pairs]
