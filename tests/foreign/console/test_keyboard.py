"""The page without a mouse: what can be done is reached with Tab, seen to have the focus, and done by keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from servers.chromium import Page

if TYPE_CHECKING:
    from tests.foreign.console.conftest import Open

pytestmark = [pytest.mark.foreign, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]
TABS = ("swap", "market", "network", "relayer", "events", "api")
FOCUSED = """(() => {
  const at = document.activeElement;
  at.dataset.seen = "yes";
  const { outlineStyle, outlineWidth } = getComputedStyle(at);
  const field = at.closest(".field:focus-within");
  const framed = field !== null && getComputedStyle(field).borderTopColor !== "rgba(0, 0, 0, 0)";
  const name = at.getAttribute("aria-label") || at.labels?.[0]?.textContent || at.textContent || at.placeholder || "";
  const outlined = outlineStyle !== "none" && parseFloat(outlineWidth) >= 1;
  return {tag: at.tagName, name: name.trim(), visible: framed || outlined, isAll: at === document.body};
})()"""
LEFT = """[...document.querySelectorAll("a[href], button:not([disabled]), input, select, textarea, summary")]
  .filter((item) => !item.dataset.seen && item.checkVisibility())
  .filter((item) => !item.closest("details:not([open]) > :not(summary)"))
  .map((item) => item.outerHTML.slice(0, 120))"""
ENOUGH = 400  # presses of Tab: the longest tab has some 120 stops


async def press(page: Page, key: str, text: str = "") -> None:
    """A key, as it comes from a keyboard."""
    code = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32}.get(key, 0)
    facts: dict[str, Any] = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": code}
    await page.ask("Input.dispatchKeyEvent", type="keyDown", **facts, **({"text": text} if text else {}))
    await page.ask("Input.dispatchKeyEvent", type="keyUp", **facts)


async def tab_to(page: Page, wanted: str) -> None:
    """Press Tab until the focus is on what an expression says of `at`."""
    for _ in range(ENOUGH):
        await press(page, "Tab")
        if await page.value(f"((at) => {wanted})(document.activeElement)"):
            return
    raise AssertionError(f"Tab never came to {wanted}")


@pytest.mark.parametrize("tab", TABS)
async def test_everything_is_reached_and_seen(open_page: Open, tab: str) -> None:
    """Tab comes to whatever can be pressed or written into, once around, and each has a name and a visible focus."""
    page = await open_page(tab)
    await page.look(1280)
    await page.until(
        "document.querySelectorAll('main section').length > 0 && !/Loading/.test(document.body.textContent)"
    )
    for _ in range(ENOUGH):
        await press(page, "Tab")
        at = await page.value(FOCUSED)
        if at["isAll"]:
            break
        assert at["visible"], at
        assert at["name"], at
    # What was drawn behind the focus while it went on, as live tables do, is reached the next time around.
    assert at["isAll"], "the focus goes in circles"
    for _ in range(ENOUGH):
        if not await page.value(LEFT):
            break
        await press(page, "Tab")
        await page.value(FOCUSED)
    assert await page.value(LEFT) == []


async def test_a_swap_by_keys(open_page: Open) -> None:
    """From the address bar to an executed swap: skip link, token picker with search, amount, wallet, faucet, swap."""
    page = await open_page("swap")
    await page.until("document.querySelector('.facts') !== null")
    await press(page, "Tab")
    assert await page.value("document.activeElement.className") == "skip"
    await press(page, "Enter", "\r")
    assert await page.value("document.activeElement.id") == "main"
    await tab_to(page, "/choose the token you receive/.test(at.ariaLabel ?? '')")
    await press(page, "Enter", "\r")
    await page.until("document.querySelector('dialog[open] input') === document.activeElement")
    await page.ask("Input.insertText", text="UTK")
    await page.until("/^UTK/.test(document.querySelector('dialog .tokens button .who')?.textContent ?? '')")
    await tab_to(page, "/^UTK/.test(at.querySelector('.who')?.textContent ?? '')")
    await press(page, "Enter", "\r")
    await page.until("document.querySelector('dialog[open]') === null")
    assert await page.value("/choose the token you receive/.test(document.activeElement.ariaLabel)"), (
        "the focus came back"
    )
    for name in ("demonstration", "fund", "swap"):
        await page.until(f"document.getElementById('{name}')?.disabled === false")
        await tab_to(page, f"at.id === '{name}'")
        await press(page, "Enter", "\r")
    await page.until("/Executed/.test(document.querySelector('.steps')?.textContent ?? '')")


async def test_escape_closes_the_picker(open_page: Open) -> None:
    """Escape leaves a dialog, and the focus is where it was."""
    page = await open_page("swap")
    await page.until("document.querySelector('.facts') !== null")
    await tab_to(page, "/choose the token you pay/.test(at.ariaLabel ?? '')")
    await press(page, " ", " ")
    await page.until("document.querySelector('dialog[open]') !== null")
    await press(page, "Escape")
    await page.until("document.querySelector('dialog[open]') === null")
    assert await page.value("/choose the token you pay/.test(document.activeElement.ariaLabel)")
