"""How a sync face is made of an async class: a loop on a thread of its own, and a plain method for each coroutine."""

from __future__ import annotations

import asyncio
import functools
import importlib
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


class _Loop:
    """An event loop on a thread; what runs there is awaited from other threads."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="millrace-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine; it is cancelled when whoever waits is interrupted."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End the thread, and those that it had work done on."""
        self.run(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _called(function: Callable[..., T], *args: Any, **named: Any) -> T:
    return function(*args, **named)


class Face:
    """What all sync faces have: the async object behind, and the loop that it lives on."""

    _of: type
    _inner: Any
    _loop: _Loop
    _owns_loop = False

    def __init__(self, *args: Any, **named: Any) -> None:
        self._loop, self._owns_loop = _Loop(), True
        try:
            self._inner = self._loop.run(_called(self._of, *args, **named))
        except BaseException:
            self._loop.close()
            raise

    def __enter__(self) -> Any:
        self._loop.run(self._inner.__aenter__())
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.run(self._inner.__aexit__(*error))
        if self._owns_loop:
            self._loop.close()

    def __repr__(self) -> str:
        return repr(self._inner)


HOMES = {
    "Aggregator": "aggregator",
    "Handle": "handle",
    "Hub": "hub",
    "Millrace": "client",
    "Relayer": "relayer",
    "Subscription": "mailbox",
}
"""The async classes that have a sync face, each with the module it lives in."""
FACES: dict[type, type[Face]] = {}
"""The faces that were made, by their async class."""


def face_named(name: str) -> type[Face]:
    """The sync face of the class of `HOMES` with this name."""
    of: type = getattr(importlib.import_module(f"millrace_client.{HOMES[name]}"), name)
    return FACES.get(of) or face_of(of)


def _shown(value: Any, loop: _Loop) -> Any:
    """A value as the sync face gives it: objects that live on the loop are wrapped, those in `Submitted` too."""
    from millrace_client.submitted import Submitted

    if type(value).__name__ in HOMES and type(value).__module__.startswith("millrace_client."):
        wrapped = object.__new__(face_named(type(value).__name__))
        wrapped._inner, wrapped._loop = value, loop
        return wrapped
    if isinstance(value, Submitted):
        return Submitted([_shown(item, loop) for item in value.handles], value.refused)
    if hasattr(value, "__anext__"):
        return _iterated(value, loop)
    return value


def _iterated(items: Any, loop: _Loop) -> Iterator[Any]:
    while True:
        try:
            item = loop.run(items.__anext__())
        except StopAsyncIteration:
            return
        yield _shown(item, loop)


def _real(value: Any) -> Any:
    return value._inner if isinstance(value, Face) else value


def _method(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    is_coroutine = inspect.iscoroutinefunction(function)

    @functools.wraps(function)
    def call(self: Face, *args: Any, **named: Any) -> Any:
        bound = getattr(self._inner, name)
        args, named = tuple(map(_real, args)), {key: _real(value) for key, value in named.items()}
        work = bound(*args, **named) if is_coroutine else _called(bound, *args, **named)
        return _shown(self._loop.run(work), self._loop)

    return call


def face_of(of: type) -> type[Face]:
    """The sync face of an async class: its public methods and attributes."""

    def __getattr__(self: Face, name: str) -> Any:  # noqa: N807
        if name.startswith("_"):
            raise AttributeError(name)
        return _shown(getattr(self._inner, name), self._loop)

    members: dict[str, Any] = {
        "_of": of,
        "__doc__": of.__doc__,
        "__getattr__": __getattr__,
        "__module__": "millrace_client.sync",
    }
    for name, member in inspect.getmembers(of, inspect.isfunction):
        if not name.startswith("_"):
            members[name] = _method(name, member)
    if hasattr(of, "__anext__"):
        members["__iter__"] = lambda self: _iterated(self._inner, self._loop)
    face = type(of.__name__, (Face,), members)
    FACES[of] = face
    return face
