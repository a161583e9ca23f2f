"""What tests may do to the chain: forks, stops, late finality, broken node connections, quiet markets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from millrace.chain.shard import METACHAIN
from millrace.localnet.chain.machine import Chain, NodeEvent

MAX_DELAY = 1000


class ControlError(Exception):
    """The action is unknown, or cannot be done; the text says why."""

    def __init__(self, text: str, *, unknown: bool = False) -> None:
        super().__init__(text)
        self.unknown = unknown


class ControlledObserver(Protocol):
    """What the control endpoint needs of an observer."""

    shard: int
    index: int

    @property
    def connected(self) -> bool: ...

    @property
    def waiting(self) -> int: ...

    def drop_connection(self) -> bool: ...

    def send_twice(self) -> None: ...


class Control:
    """The actions, each by its name in `POST /control/{action}`."""

    def __init__(self, chain: Chain, observers: list[Any], emit: Callable[[list[NodeEvent]], None]) -> None:
        self._chain = chain
        self._observers: list[ControlledObserver] = observers
        self._emit = emit
        self._actions: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "revert": self._revert,
            "stop": self._stop,
            "start": self._start,
            "finality": self._finality,
            "execution": self._execution,
            "disconnect": self._disconnect,
            "duplicate": self._duplicate,
            "traders": self._traders,
        }

    def act(self, action: str, body: dict[str, Any]) -> dict[str, Any]:
        """Do it and describe the outcome. Raises `ControlError`."""
        if action not in self._actions:
            raise ControlError(f"unknown action; known are {', '.join(self._actions)}", unknown=True)
        return self._actions[action](body)

    def observers_state(self) -> list[dict[str, Any]]:
        """Each observer: connected or not, and how many events wait."""
        return [
            {"shard": _label(item.shard), "index": item.index, "connected": item.connected, "waiting": item.waiting}
            for item in self._observers
        ]

    def _revert(self, body: dict[str, Any]) -> dict[str, Any]:
        """Take back the newest `depth` blocks of a shard; only those not final yet."""
        shard, depth = self._shard(body), _whole(body, "depth", 1)
        try:
            events = self._chain.take_back(shard, depth)
        except ValueError as error:
            raise ControlError(str(error)) from None
        self._emit(events)
        return {"shard": shard, "reverted": len(events), "blockNonce": self._chain.shards[shard].next_nonce - 1}

    def _stop(self, body: dict[str, Any]) -> dict[str, Any]:
        shard = self._shard(body)
        self._chain.shards[shard].stopped = True
        return {"shard": shard, "stopped": True}

    def _start(self, body: dict[str, Any]) -> dict[str, Any]:
        shard = self._shard(body)
        self._chain.shards[shard].stopped = False
        return {"shard": shard, "stopped": False}

    def _finality(self, body: dict[str, Any]) -> dict[str, Any]:
        """Blocks become final `delayRounds` rounds after their own, from now on."""
        rounds = _whole(body, "delayRounds", None)
        if rounds > MAX_DELAY:
            raise ControlError(f"delayRounds: at most {MAX_DELAY}, since every block that is not final is kept")
        self._chain.finality_rounds = rounds
        return {"delayRounds": self._chain.finality_rounds}

    def _execution(self, body: dict[str, Any]) -> dict[str, Any]:
        """Pause or resume the execution of a shard's proposals; paused, headers tell none."""
        shard, enabled = self._shard(body), _flag(body)
        self._chain.shards[shard].executes = enabled
        return {"shard": shard, "enabled": enabled, "executedNonce": self._chain.executed_nonce(shard)}

    def _disconnect(self, body: dict[str, Any]) -> dict[str, Any]:
        """Drop the connections of a shard's observers, or of one of them; they come back by themselves."""
        return {"disconnected": sum(observer.drop_connection() for observer in self._chosen(body))}

    def _duplicate(self, body: dict[str, Any]) -> dict[str, Any]:
        """Have the next event of a shard's observers, or of one of them, sent twice."""
        chosen = self._chosen(body)
        for observer in chosen:
            observer.send_twice()
        return {"duplicating": len(chosen)}

    def _traders(self, body: dict[str, Any]) -> dict[str, Any]:
        """Pause or resume the background traders; paused, `blockNonce` is where the market began to stand still."""
        if _flag(body):
            self._chain.traders.enabled = True
            return {"enabled": True}
        return {"enabled": False, "blockNonce": self._chain.pause_traders()}

    def _shard(self, body: dict[str, Any]) -> int:
        shard = _whole(body, "shard", None)
        if shard not in self._chain.shards:
            raise ControlError(f"there is no shard {shard}")
        return shard

    def _chosen(self, body: dict[str, Any]) -> list[ControlledObserver]:
        shard = METACHAIN if body.get("shard") == "meta" else self._shard(body)
        index = body.get("observer")
        chosen = [item for item in self._observers if item.shard == shard and index in (None, item.index)]
        if not chosen:
            raise ControlError("there is no such observer")
        return chosen


def _flag(body: dict[str, Any]) -> bool:
    enabled = body.get("enabled")
    if not isinstance(enabled, bool):
        raise ControlError("expected enabled: true or false")
    return enabled


def _whole(body: dict[str, Any], name: str, default: int | None) -> int:
    value = body.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ControlError(f"expected {name}: an integer from 0 on")
    return value


def _label(shard: int) -> int | str:
    return "meta" if shard == METACHAIN else shard
