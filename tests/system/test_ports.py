"""Ports handed out for a while are free, different, and none that the system hands out by itself."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from millrace.system import ports


def test_each_is_different_and_can_be_listened_on() -> None:
    """Every port of one call can be opened, all at the same time."""
    found = ports.free_ports(20)
    listeners = [socket.create_server((ports.HOST, port)) for port in found]
    for listener in listeners:
        listener.close()
    assert len(set(found)) == 20


def test_none_is_of_the_range_for_outgoing_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that anybody opens meanwhile cannot take one of them."""
    file = tmp_path / "range"
    file.write_text("20500\t60999\n")
    monkeypatch.setattr(ports, "_EPHEMERAL", file)
    assert max(ports.free_ports(50)) < 20500


@pytest.mark.parametrize("text", ["", "1024 65535", "words"])
def test_a_strange_range_leaves_room(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system's own range begins low, or cannot be read, ports are found all the same."""
    file = tmp_path / "range"
    file.write_text(text)
    monkeypatch.setattr(ports, "_EPHEMERAL", file)
    assert len(ports.free_ports(3)) == 3


def test_parts_have_no_port_in_common(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that are confined to different parts are never given the same port."""
    file = tmp_path / "range"
    file.write_text("20100\t60999\n")  # 10 100 ports below: three parts of 3 366 and two over
    monkeypatch.setattr(ports, "_EPHEMERAL", file)
    monkeypatch.setattr(ports, "_part", ports._part)  # put back in the end
    for part, (lowest, highest) in enumerate([(10_000, 13_365), (13_366, 16_731), (16_732, 20_097)]):
        ports.confine(part, 3)
        found = ports.free_ports(100)
        assert lowest <= min(found) and max(found) <= highest


def test_when_all_are_taken_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without free ports ends in words and not in a loop."""

    def taken(*_: object, **__: object) -> socket.socket:
        raise OSError(98, "address already in use")

    monkeypatch.setattr(socket, "create_server", taken)
    with pytest.raises(ports.NoFreePort, match="no 2 free ports"):
        ports.free_ports(2)


def test_none_comes_again_before_all_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who was given a port and does not listen there yet keeps it, however often others ask."""
    file = tmp_path / "range"
    file.write_text("20100\t60999\n")
    monkeypatch.setattr(ports, "_EPHEMERAL", file)
    monkeypatch.setattr(ports, "_part", ports._part)
    ports.confine(1, 50)  # 202 ports
    found = [ports.free_ports(1)[0] for _ in range(150)]
    assert len(set(found)) == 150
