"""Kernels are compiled by two processes at first, and each finds what the other has made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from millrace.routing.warm import parts, take_over, warm


def test_what_is_compiled_ahead_is_what_searches_use() -> None:
    """The types that the large parts are compiled for are the ones that a search calls them with: there is one code."""
    warm()
    for part in [part for share in parts() for part in share]:
        part.compile()
        module, name = part.kernel.__module__.rpartition(".")[2], part.kernel.__name__
        cache = Path(part.kernel.stats.cache_path)
        assert len(list(cache.glob(f"{module}.{name}-*.nbc"))) == 1, name


def test_a_folder_of_kernels_is_taken_over_without_replacing_any(tmp_path: Path) -> None:
    """New kernels move with all their files; one that is there already stays as it is, with its own files."""
    made, cache = tmp_path / "made", tmp_path / "cache"
    for folder, name, text in [
        (made, "a.f-1.nbi", "index"),
        (made, "a.f-1.1.nbc", "code"),
        (made, "a.f-1.2.nbc", "more code"),
        (made, "a.f-11.nbi", "its own"),
        (made, "a.f-11.1.nbc", "its own"),
        (made, "a.g-2.nbi", "theirs"),
        (made, "a.g-2.1.nbc", "theirs"),
        (cache, "a.g-2.nbi", "ours"),
        (cache, "a.g-2.1.nbc", "ours"),
    ]:
        (folder / "routing").mkdir(parents=True, exist_ok=True)
        (folder / "routing" / name).write_text(text)
    take_over(made, cache)
    assert {path.name: path.read_text() for path in (cache / "routing").iterdir()} == {
        "a.f-1.nbi": "index",
        "a.f-1.1.nbc": "code",
        "a.f-1.2.nbc": "more code",
        "a.f-11.nbi": "its own",
        "a.f-11.1.nbc": "its own",
        "a.g-2.nbi": "ours",
        "a.g-2.1.nbc": "ours",
    }


def test_nothing_to_take_over_changes_nothing(tmp_path: Path) -> None:
    """A helper that has made nothing, or ended before it began, leaves the cache as it is."""
    take_over(tmp_path / "absent", tmp_path)
    assert not list(tmp_path.iterdir())


QUOTES = """
import sys
from numba.core.dispatcher import Dispatcher
from millrace.dex.market import DictMarket
from millrace.routing.planner import Planner
from millrace.routing.router import Limits, NoRoute
from millrace.routing.plan import PlanError
from millrace.routing.synthetic import WRAPPED, make_market
from millrace.routing.warm import warm

def compiled():
    modules = [module for name, module in sorted(sys.modules.items()) if name.startswith("millrace.routing")]
    kernels = {kernel for module in modules for kernel in vars(module).values() if isinstance(kernel, Dispatcher)}
    return {(kernel.__name__, str(signature)) for kernel in kernels for signature in kernel.overloads}

warm()
before = compiled()
for noise in (0.0, 0.02):
    market = make_market(40, seed=3, noise=noise, curved=0.3, traded_lp=3)
    planner = Planner(market.pools, DictMarket(market.pools, WRAPPED))
    tokens = sorted({token for pool in market.pools[:40] for token in (*pool.tokens[:2], pool.lp_token)})
    for k, algorithm in enumerate(("hybrid", "greedy", "lagrangian") * 12):
        ends, limits = (tokens[k % 7], tokens[-1 - k % 5 * (k % 2)]), Limits(liquidity=k % 4 == 3)
        for question, amount in ((planner.forward, 10 ** (3 + k % 20)), (planner.reverse, 10**12)):
            try:
                question(*(ends if k % 6 else ends[:1] * 2), amount, limits, algorithm)
            except (NoRoute, PlanError):
                pass
assert len(before) > 5
print("\\n".join(map(str, sorted(compiled() - before))))
"""


def test_no_question_waits_for_the_compiler() -> None:
    """After warming up, quotes of every kind need no kernel that was not there, be it compiled or from the cache."""
    done = subprocess.run([sys.executable, "-c", QUOTES], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.strip() == ""
