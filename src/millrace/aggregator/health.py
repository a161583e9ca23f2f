"""What /health says, of a process alone or of all workers."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from aiohttp import web

from millrace.aggregator.feed import Feed
from millrace.aggregator.responses import Health
from millrace.aggregator.settings import AggregatorSettings
from millrace.runtime.http import json_response
from millrace.runtime.version import version

SHOWN_FAULTS = 100


class Workers(NamedTuple):
    """How many processes answer, and how many there are to be."""

    serving: int = 1
    wanted: int = 1


def health(feed: Feed[Any], settings: AggregatorSettings, started: float, workers: Workers) -> web.Response:
    """200 while quotes are served, else 503 with the same body. `started` is on `time.monotonic`."""
    snapshot, age = feed.snapshot, feed.age()
    usable = feed.usable() is not None and workers.serving > 0
    left_out = () if snapshot is None else snapshot.document.quarantined
    body = Health(
        status="ok" if usable else "starting" if snapshot is None or not workers.serving else "stale",
        service_version=version(),
        pools=0 if snapshot is None else len(snapshot.document.pools),
        tokens=0 if snapshot is None else len(snapshot.document.tokens),
        uptime_seconds=round(time.monotonic() - started, 3),
        snapshot_id=None if snapshot is None else snapshot.id,
        snapshot_age_seconds=None if age is None else round(age, 3),
        block_nonce=None if snapshot is None else snapshot.document.block.nonce,
        source=settings.pools_url,
        last_error=feed.last_error,
        quarantined=len(left_out),
        quarantine=left_out[:SHOWN_FAULTS],
        workers=workers.serving,
        workers_wanted=workers.wanted,
    )
    return json_response(body, 200 if usable else 503)
