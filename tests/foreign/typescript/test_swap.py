"""What the client's README shows is what happens: swaps of a wallet without EGLD, from Node and from a page."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from millrace.chain.address import encode
from millrace.system.demo import AMOUNT_IN, GET, PAY
from servers.chromium import opened, served
from servers.typescript_client import CLIENT, System, node

pytestmark = [pytest.mark.foreign, pytest.mark.asyncio(loop_scope="module")]
LONGEST = 15
"""Lines that a swap may take."""


def blocks(kind: str) -> list[str]:
    """The README's blocks of this kind."""
    return re.findall(rf"```{kind}\n(.*?)```", (CLIENT / "README.md").read_text(), re.DOTALL)


async def test_the_swap_in_node(installed: Path, system: System) -> None:
    """The README's lines, in a folder with the package alone, swap what they say; the relayer pays."""
    lines = blocks("js")[0]
    assert len([line for line in lines.splitlines() if line.strip()]) <= LONGEST
    key = await system.wallet()
    (installed / "wallet.pem").write_text(key.to_pem())
    (installed / "swap.mjs").write_text(system.here(lines))
    code, output = await node(["--disable-warning=ExperimentalWarning", "swap.mjs"], installed)
    assert code == 0, output
    assert "state: 'success'" in output, output
    least = int(re.findall(r"at least (\d+)", output)[0])
    balances = await system.chain.balances(encode(key.public))
    assert balances[GET] >= least
    assert balances[PAY] == 2 * AMOUNT_IN
    assert balances["EGLD"] == 0


async def test_the_other_examples(installed: Path, system: System) -> None:
    """The README's further lines run as they stand, after the first ones up to the signer."""
    swap, rest, hub = blocks("js")
    key = await system.wallet()
    (installed / "wallet.pem").write_text(key.to_pem())
    start = swap[: swap.index("const { quote")]
    (installed / "rest.mjs").write_text(system.here(start + rest + "millrace.close();"))
    (installed / "hub.mjs").write_text(system.here(hub))
    code, output = await node(["--disable-warning=ExperimentalWarning", "rest.mjs"], installed)
    assert code == 0, output
    assert output.startswith("success erd1"), output
    code, output = await node(["hub.mjs"], installed)
    assert code == 0, output
    assert "SaveBlock" in output


EXTENSION = """<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,">
<script>
  // A stand-in for the wallet's browser extension: its message protocol, with a key of this test.
  window.multiversxWallet = true;
  const signer = Promise.all([import("./millrace/ed25519.js"), fetch("wallet.pem").then((answer) => answer.text())])
    .then(([{ Ed25519Signer }, pem]) => Ed25519Signer.fromPem(pem));
  addEventListener("message", async ({ data: { target, type, data } }) => {
    if (target !== "erdw-inpage") return;
    const wallet = await signer;
    const sign = () => Promise.all(data.transactions.map((tx) => wallet.sign(tx)));
    const answer = type === "connect" ? { address: wallet.address } : await sign();
    postMessage({ target: "erdw-contentScript", type: type + "Response", data: answer }, location.origin);
  });
</script>
"""


async def test_the_swap_in_a_page(installed: Path, system: System, tmp_path: Path) -> None:
    """The README's module script swaps in Chromium, with the extension's protocol for signing; the relayer pays."""
    (lines,) = blocks("html")
    assert len([line for line in lines.splitlines() if line.strip()]) <= LONGEST
    key = await system.wallet(shard=1)
    site = tmp_path / "site"
    shutil.copytree(installed / "node_modules" / "@millrace" / "client" / "dist", site / "millrace")
    (site / "wallet.pem").write_text(key.to_pem())
    (site / "index.html").write_text(EXTENSION + system.here(lines))
    async with served(site) as address, opened(f"{address}/index.html", tmp_path / "profile") as page:
        assert await page.until("document.title") == "success", page.complaints
        assert page.complaints == []
    balances = await system.chain.balances(encode(key.public))
    assert balances[GET] > 0
    assert balances[PAY] == 2 * AMOUNT_IN
    assert balances["EGLD"] == 0
