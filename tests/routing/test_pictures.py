"""The pictures of docs/routing.md are those of their script, and what they show is what the search does."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def pictures() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pictures", DOCS / "pictures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pictures_are_up_to_date(pictures: ModuleType) -> None:
    """`python docs/pictures.py` would change nothing, and the page shows each picture."""
    page = (DOCS / "routing.md").read_text()
    for name, draw in pictures.PICTURES.items():
        assert (DOCS / name).read_text() == draw(), f"{name}: run python docs/pictures.py"
        assert f"]({name})" in page


def test_the_page_tells_the_numbers_of_the_pictures(pictures: ModuleType) -> None:
    """What the text says of the examples is what they come to."""
    page = (DOCS / "routing.md").read_text()
    first, second = pictures.PARALLEL
    price, taken = pictures.split(pictures.PARALLEL)
    bound = pictures.dual(pictures.PARALLEL, price)
    halves = first.pays(50.0) + second.pays(50.0)
    net = [pictures.kept(count) - pictures.TOLL * count for count in range(1, 7)]
    prices = pictures.network_prices()
    said = [
        f"{first.pays(100.0):.2f}",
        f"{price:.4f}",
        f"{bound:.2f}",
        f"{halves:.2f}",
        f"{100 * (1 - halves / bound):.2f} %",
    ]
    said += [
        f"{taken[0] / 100.0:.3f}",
        f"{net[0]:.2f}",
        f"{net[3]:.2f}",
        f"{net[5]:.2f}",
        f"{prices['C'] / prices['D']:.2f}",
    ]
    for number in said:
        assert re.search(rf"(?<![\d.]){re.escape(number)}", page), number


def test_the_dual_of_the_network_is_what_its_flow_pays(pictures: ModuleType) -> None:
    """At the lowest point trades fit together at every token, and pay the bound."""
    flow = pictures.network_flow()
    paid = {edge: pictures.NETWORK[edge].pays(amount) for edge, amount in flow.items()}
    for token in ("C", "D"):
        bought = sum(amount for (_, b), amount in paid.items() if b == token)
        sold = sum(amount for (a, _), amount in flow.items() if a == token)
        assert bought == pytest.approx(sold, abs=1e-2)
    assert sum(amount for (a, _), amount in flow.items() if a == "A") == pytest.approx(pictures.AMOUNT, abs=1e-2)
    got = sum(amount for (_, b), amount in paid.items() if b == "B")
    assert got == pytest.approx(pictures.network_dual(pictures.network_prices()), abs=1e-2)
