"""What of the services is passed on: a list of paths, so that the console is no way to anything else."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from millrace.console.settings import ConsoleSettings

Kind = Literal["http", "socket", "stream"]
Whom = Literal["everybody", "operators"]


class Route(NamedTuple):
    """Where a path leads."""

    service: str
    """A label; also the first part of the path."""
    url: str
    """Of the service, without a slash at its end; empty: it is not there."""
    path: str
    kind: Kind
    whom: Whom


class _Rule(NamedTuple):
    setting: str
    service: str
    methods: tuple[str, ...]
    paths: re.Pattern[str]
    kind: Kind = "http"
    whom: Whom = "everybody"


def _paths(text: str) -> re.Pattern[str]:
    return re.compile(text, re.ASCII)


_NAME = r"[A-Za-z0-9_.-]+"
_OPERATORS = _paths(rf"metrics|health|ready|(control|v1)(/{_NAME}){{1,4}}")
_RULES = (
    _Rule("aggregator_url", "aggregator", ("GET",), _paths(r"api/v1/quote/stream"), "stream"),
    _Rule("aggregator_url", "aggregator", ("GET",), _paths(rf"api/v1/{_NAME}|health|openapi\.json|docs(/{_NAME})?")),
    _Rule("aggregator_url", "aggregator", ("POST",), _paths(r"api/v1/(batch-quote|multi-swap)")),
    _Rule("relayer_ws_url", "relayer", ("GET",), _paths(r"ws(/stats)?"), "socket"),
    _Rule("relayer_url", "relayer", ("GET",), _paths(rf"v1(/{_NAME}){{1,2}}|health|ready|(openapi|asyncapi)\.json")),
    _Rule("relayer_url", "relayer", ("POST",), _paths(rf"v1/{_NAME}")),
    _Rule("chain_url", "chain", ("GET",), _paths(rf"accounts/{_NAME}(/tokens)?|transactions/{_NAME}")),
    _Rule("chain_url", "chain", ("POST",), _paths("vm-values/query")),
    _Rule("hub_url", "operators/notifier", ("GET",), _paths(r"hub/ws"), "socket", "operators"),
    *(
        _Rule(f"{name}_operators_url", f"operators/{name}", ("GET", "POST"), _OPERATORS, "http", "operators")
        for name in ("aggregator", "relayer", "notifier")
    ),
)
_FAUCET = _Rule("chain_url", "chain", ("POST",), _paths("faucet"))


class Routes:
    """The routes under these settings."""

    def __init__(self, settings: ConsoleSettings) -> None:
        rules = (*_RULES, _FAUCET) if settings.faucet else _RULES
        self._rules = [(rule, str(getattr(settings, rule.setting)).rstrip("/")) for rule in rules]

    @property
    def services(self) -> dict[str, bool]:
        """Which services there are, by name."""
        there: dict[str, bool] = {}
        for rule, url in self._rules:
            there[rule.service] = there.get(rule.service, False) or bool(url)
        return there

    def find(self, method: str, path: str, *, upgrades: bool) -> Route | None:
        """Where a request leads to; `path` as it came, without its first slash and not decoded. None: nowhere.

        A GET that upgrades wants a WebSocket or a stream, any other one neither a WebSocket.
        """
        for rule, url in self._rules:
            prefix, rest = f"{rule.service}/", path[len(rule.service) + 1 :]
            if not path.startswith(prefix) or method not in rule.methods:
                continue
            if not rule.paths.fullmatch(rest) or ".." in rest:
                continue
            if (rule.kind == "http" and upgrades) or (rule.kind == "socket" and not upgrades):
                continue
            return Route(rule.service, url, rest, rule.kind, rule.whom) if url else None
        return None
