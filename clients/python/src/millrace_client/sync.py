"""The same client without `async`: every class here is made from its async one, which runs on a thread of its own.

`Millrace`, `Aggregator`, `Relayer` and `Hub` are context managers; what their methods give (handles, subscriptions) has
a sync face as well, and async iterators become iterators. Ctrl-C and exceptions arrive where the call was made.
`sync.pyi` says the types; `python clients/python/sync_types.py` writes it again after a change.
"""

from __future__ import annotations

from typing import Any

from millrace_client.portal import HOMES, face_named


def __getattr__(name: str) -> Any:
    """A class of this face, made when it is first used: who wants one does not wait for all."""
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return face_named(name)
