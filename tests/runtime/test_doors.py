"""Connections are bounded in all and for each client, whatever they bring later."""

from __future__ import annotations

import pytest

from millrace.runtime import doors
from millrace.runtime.client_address import ClientAddress
from millrace.runtime.doors import Doors


def test_row_30_connections_of_a_client() -> None:
    """So many at once of one address or network; a closed one makes room; proxies and this machine are not bounded."""
    entrance = Doors(1_000, 2, ClientAddress(["10.0.0.0/8"]))
    for peer in ("1.2.3.4", "2001:db8::1"):
        assert [entrance.enter(peer) for _ in range(3)] == [True, True, False]
    assert not entrance.enter("2001:db8::2") and entrance.enter("2001:db8:0:1::1")
    for peer in ("127.0.0.1", "10.1.2.3"):
        assert all(entrance.enter(peer) for _ in range(9))
    entrance.leave("1.2.3.4")
    assert not entrance.enter("1.2.3.4"), "the refused one is still there"
    for _ in range(2):
        entrance.leave("1.2.3.4")
    assert entrance.enter("1.2.3.4") and entrance.refused == 4
    for _ in range(2):
        entrance.leave("1.2.3.4")
    assert "1.2.3.4" not in entrance._open


def test_connections_are_bounded_in_all_and_for_each_client() -> None:
    """One client has its part; this machine and trusted proxies only count in all; who leaves makes room."""
    entrance = Doors(5, 2, ClientAddress(("10.0.0.0/8",)))
    assert [entrance.enter("192.0.2.1") for _ in range(3)] == [True, True, False]
    entrance.leave("192.0.2.1")
    assert entrance.enter("192.0.2.2")
    entrance.leave("192.0.2.1")
    assert entrance.enter("192.0.2.1")
    entrance.leave("192.0.2.2")
    assert [entrance.enter("10.1.1.1") for _ in range(4)] == [True, True, True, False]
    assert (entrance.open, entrance.refused) == (6, 2)


def test_connections_leave_some_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many connections are allowed, some of the files a process may open are left for other uses."""
    monkeypatch.setattr(doors.resource, "getrlimit", lambda _: (doors.SPARE_FILES + 3, 4096))
    entrance = Doors(10_000, 10_000, ClientAddress())
    assert [entrance.enter("127.0.0.1") for _ in range(4)] == [True, True, True, False]


def test_files_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a process may open any number of files, only the given bound counts."""
    monkeypatch.setattr(doors.resource, "getrlimit", lambda _: (doors.resource.RLIM_INFINITY,) * 2)
    entrance = Doors(2, 2, ClientAddress())
    assert [entrance.enter("127.0.0.1") for _ in range(3)] == [True, True, False]
