"""How an event loop keeps the GIL while it answers."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator

import msgspec
import pytest

from millrace.runtime import http
from millrace.runtime.undisturbed import PATIENT, Undisturbed

EAGER = 0.002


@pytest.fixture(autouse=True)
def interval() -> Iterator[None]:
    """The interpreter's switch interval, as it was before."""
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)


async def test_threads_are_patient_while_a_request_is_answered_at_once() -> None:
    """Threads wait for long only while a request is answered at once, parsed or known, and whatever becomes of it."""

    def microseconds() -> int:
        return round(1e6 * sys.getswitchinterval())

    patient, eager = round(1e6 * PATIENT), round(1e6 * EAGER)

    def answer(ask: http.Ask) -> http.Json | http.Later:
        async def later() -> http.Json:
            return http.Json(msgspec.json.encode(microseconds()))

        if ask.query == "late":
            return later
        found = microseconds()
        if ask.query == "defect":
            raise ValueError(found)
        return http.Json(msgspec.json.encode(found))

    app = http.make_app()
    app.router.add_get("/", http.in_turn(answer))
    server = http.HttpServer(app, at_once={"/": answer}, undisturbed=Undisturbed(EAGER))
    assert microseconds() == eager
    reader, writer = await asyncio.open_connection("127.0.0.1", await server.start("127.0.0.1", 0))
    found = []
    for query in ("", "1", "late", "defect", "2"):
        writer.write(b"GET /?%s HTTP/1.1\r\nHost: x\r\n\r\n" % query.encode())
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.readexactly(int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]))
        found.append((query, int(head[9:12]), body if query == "defect" else msgspec.json.decode(body)))
        assert microseconds() == eager
    assert found == [
        ("", 200, patient),
        ("1", 200, patient),
        ("late", 200, eager),
        ("defect", 500, b'{"error":"internal error"}'),
        ("2", 200, patient),
    ]
    writer.close()
    await server.stop()
