"""The same client without `async`: every class here is made from its async one, which runs on a thread of its own.

`Millrace`, `Aggregator`, `Relayer` and `Hub` are context managers; what their methods give (handles, subscriptions) has
a sync face as well, and async iterators become iterators. Ctrl-C and exceptions arrive where the call was made.
`sync.pyi` says the types; `python clients/python/sync_types.py` writes it again after a change.
"""

from __future__ import annotations

from millrace_client import aggregator, client, handle, hub, mailbox, relayer
from millrace_client.portal import face_of

Aggregator = face_of(aggregator.Aggregator)
Handle = face_of(handle.Handle)
Hub = face_of(hub.Hub)
Millrace = face_of(client.Millrace)
Relayer = face_of(relayer.Relayer)
Subscription = face_of(mailbox.Subscription)
