"""Path search with true outputs: the best single path, and the greedy split in chunks.

Dynamic programming over hops on the amounts themselves, pruned by the best spot rate to the sink: what
`x` units of a token can still become is at most `x * behind[token]`. Each chunk of a greedy split sees
the pools as the chunks before it left them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from millrace.routing.edge import edge_out
from millrace.routing.jit import kernel
from millrace.routing.net import Floats, Ints, Net

MAX_HOPS = 16
MAX_PATHS = 64
BUDGET = 400_000  # edge evaluations per search; a search that hits it answers with the best so far


class PathWork(NamedTuple):
    """Scratch of the path search and its answer: `paths[k, :length[k]]` edges, `flow[k]` input."""

    amount: Floats  # (hop, token)
    by: Ints  # (hop, token): edge that brought the amount
    reached: Ints  # (hop, i): tokens reached with that many hops
    fill: Ints  # (hop): how many
    used: Floats  # by edge: input of earlier chunks
    paths: Ints
    length: Ints
    flow: Floats
    work: npt.NDArray[np.int64]


def make_path_work(tokens: int, edges: int) -> PathWork:
    """Scratch for nets of up to `tokens` tokens and `edges` edges."""
    levels = MAX_HOPS + 1
    return PathWork(
        np.zeros((levels, tokens)),
        np.zeros((levels, tokens), np.int32),
        np.zeros((levels, tokens), np.int32),
        np.zeros(levels, np.int32),
        np.zeros(edges),
        np.zeros((MAX_PATHS, MAX_HOPS), np.int32),
        np.zeros(MAX_PATHS, np.int32),
        np.zeros(MAX_PATHS),
        np.zeros(1, np.int64),
    )


@kernel
def run_path(net: Net, pw: PathWork, path: Ints, length: int, x: float, commit: bool) -> float:
    """Output of `x` along a path on top of earlier chunks; `commit` books it as an earlier chunk."""
    for h in range(length):
        e = path[h]
        before = pw.used[e]
        out = edge_out(net, e, before + x) - edge_out(net, e, before) if before > 0.0 else edge_out(net, e, x)
        if commit:
            pw.used[e] = before + x
        x = out
    return x


@kernel
def _revisits(net: Net, pw: PathWork, hop: int, token: int, v: int) -> bool:
    """Whether the chain that reached `token` after `hop` hops holds `v` already."""
    while hop > 0:
        token = net.src[pw.by[hop, token]]
        hop -= 1
        if token == v:
            return True
    return False


@kernel
def best_path(
    net: Net, pw: PathWork, source: int, sink: int, x: float, behind: Floats, hops: int, floor: float, path: Ints
) -> int:
    """The path of at most `hops` pools with the most output for `x`, if it beats `floor`; its length or 0."""
    for level in range(hops + 1):
        pw.fill[level] = 0
    pw.amount[0, source] = x
    pw.reached[0, 0] = source
    pw.fill[0] = 1
    best, found, last = floor, 0, -1
    for level in range(hops):
        for i in range(pw.fill[level]):
            u = pw.reached[level, i]
            have = pw.amount[level, u]
            for k in range(net.pptr[u], net.pptr[u + 1]):
                v = net.pdst[k]
                ends = v == sink
                if not ends and (k >= net.pcore[u] or v == source or level == hops - 1):
                    continue
                if have * net.prate[k] * behind[v] <= best:
                    continue
                first = True
                for e in range(net.pe0[k], net.pe1[k]):
                    if have * net.rate[e] * behind[v] <= best:
                        break
                    pw.work[0] += 1
                    before = pw.used[e]
                    out = edge_out(net, e, before + have)
                    if before > 0.0:
                        out -= edge_out(net, e, before)
                    if ends:
                        if out > best:
                            best, found, last = out, level + 1, e
                        continue
                    if out * behind[v] <= best or out <= pw.amount[level + 1, v]:
                        continue
                    if first and _revisits(net, pw, level, u, v):
                        break
                    first = False
                    if pw.amount[level + 1, v] == 0.0:
                        pw.reached[level + 1, pw.fill[level + 1]] = v
                        pw.fill[level + 1] += 1
                    pw.amount[level + 1, v] = out
                    pw.by[level + 1, v] = e
        if pw.work[0] > BUDGET:
            break
    _read_path(net, pw, path, found, last)
    for level in range(hops + 1):
        for i in range(pw.fill[level]):
            pw.amount[level, pw.reached[level, i]] = 0.0
    return found


@kernel
def _read_path(net: Net, pw: PathWork, path: Ints, length: int, last: int) -> None:
    """Follow the predecessors of the last edge back to the source."""
    edge = last
    for h in range(length - 1, -1, -1):
        path[h] = edge
        if h > 0:
            edge = pw.by[h, net.src[edge]]


@kernel
def spot_path(net: Net, source: int, sink: int, behind: Floats, hops: int, path: Ints) -> int:
    """The path that looks best at spot rates; its length, or 0 if it is longer than `hops`."""
    token = source
    for h in range(hops):
        best, choice = 0.0, -1
        for k in range(net.pptr[token], net.pptr[token + 1]):
            v = net.pdst[k]
            value = net.prate[k] * behind[v]
            if value > best and (v == sink or (k < net.pcore[token] and v != source)):
                best, choice = value, k
        if choice < 0:
            return 0
        path[h] = net.pe0[choice]
        token = net.pdst[choice]
        if token == sink:
            return h + 1
    return 0


@kernel
def split_greedy(
    net: Net,
    pw: PathWork,
    source: int,
    sink: int,
    total: float,
    behind: Floats,
    hops: int,
    chunks: int,
    max_paths: int,
    max_pools: int,
) -> int:
    """Send `total` in equal chunks, each along the path that is best by then; returns the number of paths.

    Once `max_paths` different paths or `max_pools` pools are in use, the rest goes along the known paths.
    In a cycle (`source == sink`) it stops when a chunk no longer earns.
    """
    count, pools, open_ = 0, 0, True
    pw.work[0] = 0
    chunk = total / chunks
    for _ in range(chunks):
        choice, best = -1, chunk if source == sink else 0.0
        for k in range(count):
            out = run_path(net, pw, pw.paths[k], pw.length[k], chunk, False)
            if out > best:
                choice, best = k, out
        if open_ and count < max_paths and pw.work[0] < BUDGET:
            if count == 0:  # what the spot path pays is where the first search starts from
                length = spot_path(net, source, sink, behind, hops, pw.paths[0])
                if length > 0:
                    best = max(best, run_path(net, pw, pw.paths[0], length, chunk, False) * (1.0 - 1e-9))
            length = best_path(net, pw, source, sink, chunk, behind, hops, best * (1.0 + 1e-12), pw.paths[count])
            if length > 0 and pools + length <= max_pools:
                pw.length[count] = length
                pw.flow[count] = 0.0
                choice = count
                count += 1
                pools += length
            elif length > 0:
                open_ = False
        if choice < 0:
            break
        run_path(net, pw, pw.paths[choice], pw.length[choice], chunk, True)
        pw.flow[choice] += chunk
    for k in range(count):
        for h in range(pw.length[k]):
            pw.used[pw.paths[k, h]] = 0.0
    return count
