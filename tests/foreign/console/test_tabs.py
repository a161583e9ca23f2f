"""Every tab, at three widths and in two looks: accessible, quiet, and asking nobody but the console."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from servers.chromium import Page
from servers.typescript_client import System

if TYPE_CHECKING:
    from tests.foreign.console.conftest import Open

pytestmark = [pytest.mark.foreign, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]
PICTURES = Path(__file__).parents[3] / "build" / "console"
SHOWN = {
    "swap": "document.querySelector('.route path') && document.querySelector('.facts')",
    "market": "document.querySelectorAll('tbody tr').length > 24 && document.querySelector('.depth path') && "
    "document.querySelector('.cycle, td .sub')",
    "network": "document.querySelectorAll('.blocks rect').length > 3 && document.querySelector('.pill.good')",
    "relayer": "document.querySelectorAll('meter').length === 9 && document.querySelectorAll('section').length > 3",
    "events": "[...document.querySelectorAll('td')].some((cell) => cell.textContent === 'FinalizedBlock')"
    " && document.body.textContent.includes('Everything was understood')",
    "api": "document.querySelectorAll('.try').length > 8",
}
"""When a tab shows what it is for, by its name."""
RULES = "axe.run(document, {resultTypes: ['violations']}).then((found) => JSON.stringify(found.violations.map(" \
    "({id, impact, nodes}) => ({id, impact, nodes: nodes.map(({html}) => html).slice(0, 3)}))))"  # fmt: skip


async def faults(page: Page, axe: str) -> list[dict[str, object]]:
    """What axe finds, but for what it calls minor or moderate."""
    await page.value(axe + "; true")
    found = json.loads(await page.value(RULES))
    return [fault for fault in found if fault["impact"] in ("serious", "critical")]


def troubles(page: Page) -> list[str]:
    """What the page complains of, but for answers that a busy service asks to come again for: it does."""
    return [told for told in page.complaints if "the server responded with a status of 503" not in told]


@pytest.mark.parametrize("tab", SHOWN)
async def test_a_tab(system: System, open_page: Open, axe: str, tab: str) -> None:
    """It shows what it is for, axe finds nothing serious, nothing scrolls sideways, and no other host is asked."""
    page = await open_page(tab)
    looks = [(width, dark) for width in (1280, 390, 2560) for dark in (False, True)]
    for width, dark in looks:
        await page.look(width, dark=dark)
        await page.until(f"Boolean({SHOWN[tab]})")
        # Pictures are drawn for another width a moment after the page has it.
        await page.until("document.documentElement.scrollWidth <= innerWidth")
        await page.picture(PICTURES / f"{tab}-{width}-{'dark' if dark else 'light'}.png")
    assert troubles(page) == []
    assert {urlsplit(url).netloc for url in page.asked} == {urlsplit(system.plan.console_url).netloc}
    for width, dark in looks:  # axe itself writes styles that the page's policy refuses, which is a complaint
        await page.look(width, dark=dark)
        assert await faults(page, axe) == [], (width, dark)


KEPT = """
  const real = window.WebSocket;
  const path = (share, swaps) => ({splitPpm: share, swaps});
  const swap = (from, to) => ({from, to, dex: "xExchange", address: "erd1"});
  const turn = (token) => [swap(token, "B-1"), swap("B-1", token)];
  const paths = (token) => [path(900000, []), path(100000, turn(token))];
  const quote = (token) => ({amountIn: "200", profit: "3", profitShort: 3e-6, paths: paths(token)});
  window.WebSocket = class extends real {
    constructor(url, ...more) {
      super(url, ...more);
      this.token = new URL(url).searchParams.get("from");
    }
    set onmessage(take) {
      super.onmessage = ({ data }) => {
        const text = `event: quote\\ndata: ${JSON.stringify(quote(this.token))}\\n\\n`;
        take({ data: typeof data === "string" ? data : new TextEncoder().encode(text).buffer });
      };
    }
  };
"""


async def test_a_cycle_that_leaves_some_of_its_input_alone(system: System, open_page: Open) -> None:
    """What stays is a path without swaps: the cycle is shown by those that trade."""
    page = await open_page("network")
    await page.ask("Page.addScriptToEvaluateOnNewDocument", source=KEPT)
    await page.ask("Page.navigate", url=f"{system.plan.console_url}/?again#/market")
    await page.until("/→ B/.test(document.querySelector('.cycle')?.textContent)")
    assert troubles(page) == []


CHANGED = """
  const real = window.WebSocket;
  window.WebSocket = class extends real {
    set onmessage(take) {
      super.onmessage = ({ data }) => {
        const message = typeof data === "string" ? JSON.parse(data) : {};
        if (message.type !== "networkStats") return take({ data });
        message.schemaVersion = "2.0.0";
        message.sequence *= 3;
        message.data.health.dataCompleteness = 0.5;
        take({ data: JSON.stringify(message) });
      };
    }
  };
"""


async def test_what_the_statistics_lack_is_said(system: System, open_page: Open) -> None:
    """Banners tell of incomplete data, of messages that were left out, and of a schema that is newer than the page."""
    page = await open_page("swap")
    await page.ask("Page.addScriptToEvaluateOnNewDocument", source=CHANGED)
    await page.ask("Page.navigate", url=f"{system.plan.console_url}/?again#/network")
    for words in ("speaks version 2.0.0", "the relayer knows 50 %", "messages were left out"):
        await page.until(
            f"[...document.querySelectorAll('.banner')].some((one) => one.textContent.includes('{words}'))"
        )


async def test_history_is_looked_at_closer(system: System, open_page: Open) -> None:
    """Dragging over the history shows that part of it, and a button goes back to all of it."""
    page = await open_page("network")
    await page.look(1280)
    over = "[...document.querySelectorAll('section')].at(-1).querySelector('.u-over')"
    await page.until(f"{over} !== null && /[5-9] points|[0-9]{{2}} points/.test(document.body.textContent)")
    await page.value(f"{over}.scrollIntoView()")
    box = json.loads(await page.value(f"JSON.stringify({over}.getBoundingClientRect())"))
    for event, share in (("mousePressed", 0.1), ("mouseMoved", 0.9), ("mouseReleased", 0.9)):
        await page.ask(
            "Input.dispatchMouseEvent",
            type=event, x=box["x"] + share * box["width"], y=box["y"] + 90, button="left", buttons=1, clickCount=1,
        )  # fmt: skip
    whole = "[...document.querySelectorAll('button')].find((one) => one.textContent === 'Whole span')"
    await page.until(f"Boolean({whole})")
    await page.value(f"{whole}.click()")
    await page.until(f"!{whole}")


async def test_every_tab_is_tested(open_page: Open) -> None:
    """The header names exactly the tabs that are looked at here."""
    page = await open_page("network")
    names = await page.until(
        "document.querySelector('nav') && [...document.querySelectorAll('nav a')].map((a) => a.hash.slice(2))"
    )
    assert names == list(SHOWN)


async def test_a_service_that_dies_and_comes_back(system: System, open_page: Open) -> None:
    """The page says that the stream is away, and goes on by itself when the relayer is back."""
    page = await open_page("network")
    live, away = "document.querySelector('.pill.good')?.textContent === 'live'", "document.querySelector('.banner.bad')"
    await page.until(live)
    await system.kill("relayer")
    await page.until(f"{away} !== null")
    await system.start("relayer")
    await page.until(f"{away} === null && {live}")
