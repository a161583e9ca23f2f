"""Settings of the console (`MILLRACE_CONSOLE__<FIELD>`, table `[console]`)."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from millrace.runtime.settings import Seconds, Secret

Port = Annotated[int, Meta(ge=0, le=65535)]
Positive = Annotated[int, Meta(gt=0)]


class ConsoleSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the services are, and who may use the page; the defaults are those of `millrace up`."""

    host: str = "127.0.0.1"
    """Address that the page is served on."""
    port: Port = 8080
    """Its port; 0 takes any free one."""
    metrics_host: str = "127.0.0.1"
    """Address of the operators' port of the console itself."""
    metrics_port: Port = 8081
    """For operators: `/metrics` and `/health`. 0: any free port."""
    allowed_hosts: tuple[str, ...] = ()
    """Names under which browsers reach the page, such as `console.example`. Addresses and `localhost` always do; any
    other name in a request is refused, as it may be that of another site's page. With a name here the page counts as
    public."""
    operators_token: Secret = Secret()
    """Token that operators' routes want (`Authorization: Bearer …`), 16 characters at least. Give the services the
    same: their actions want it, too. Empty: on a loopback address anybody may look, elsewhere nobody."""

    aggregator_url: str = "http://127.0.0.1:8100"
    """The aggregator's REST interface; empty: none."""
    relayer_url: str = "http://127.0.0.1:8201"
    """The relayer's REST interface; empty: none."""
    relayer_ws_url: str = "ws://127.0.0.1:8200"
    """The relayer's WebSockets, without `/ws`; empty: none."""
    hub_url: str = "ws://127.0.0.1:8300"
    """The notifier's hub, without `/hub/ws`; for operators. Empty: none."""
    aggregator_operators_url: str = "http://127.0.0.1:8101"
    """The aggregator's operators' port; empty: none."""
    relayer_operators_url: str = "http://127.0.0.1:8202"
    """The relayer's operators' port; empty: none."""
    notifier_operators_url: str = "http://127.0.0.1:8302"
    """The notifier's operators' port; empty: none."""
    chain_url: str = ""
    """A chain API: of it accounts, their tokens, transactions and contracts' views are asked for. Empty: no balances
    are shown, and who swaps has to agree to amounts in smallest units."""
    faucet: bool = False
    """Whether the page may ask that chain's faucet: a local chain only, and what the demonstration wallet lives on."""

    contract: str = ""
    """The one contract that swaps of the page may call, bech32; empty: whichever the aggregator names. What a wallet
    signs is compared with what was asked either way."""

    connect_seconds: Seconds = 3.0
    """Time for a connection to a service."""
    answer_seconds: Seconds = 75.0
    """A service that is silent for so long in the middle of an answer is given up; streams speak every 15 s."""
    max_body_bytes: Positive = 4 * 1024 * 1024
    """Largest body of a request, and largest message of a page's WebSocket."""
    max_message_bytes: Positive = 64 * 1024 * 1024
    """Largest message of a service's WebSocket."""
    max_requests: Positive = 256
    """Requests to the services at once; one more is answered with 503."""
    max_sockets: Positive = 512
    """WebSockets and streams at once; one more is answered with 503."""
    max_connections: Positive = 4096
    """Connections of browsers at once; one more is closed."""
    max_connections_per_client: Positive = 64
    """Of these, connections of one address, this machine's apart."""
