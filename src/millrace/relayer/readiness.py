"""What `/ready` and `/health` say of a running relayer."""

from __future__ import annotations

import time
from collections.abc import Callable

from millrace.chain import address
from millrace.chain.network import NetworkProfile
from millrace.relayer.events.execution import ExecutionLag
from millrace.relayer.events.hub_client import HubClient
from millrace.relayer.forwarding.signers import Signers
from millrace.relayer.gateway.gateway import Gateway
from millrace.relayer.journal.journal import Journal
from millrace.relayer.keys import Keys
from millrace.relayer.ledger.lifecycle import Lifecycle
from millrace.relayer.network.round_length import RoundLength
from millrace.runtime.version import version


class Readiness:
    """Asks the parts when it is asked itself."""

    def __init__(
        self,
        network: NetworkProfile,
        journal: Journal,
        keys: Keys,
        lifecycle: Lifecycle,
        gateway: Gateway,
        hub: HubClient,
        *,
        has_hub: bool,
        why_not: Callable[[], str | None],
        gossip: str,
        execution: ExecutionLag,
        round_length: RoundLength | None = None,
        signers: Signers | None = None,
    ) -> None:
        """`why_not`: why nothing may be sponsored now; without a hub (`has_hub`) none need be connected.

        `gossip` is "ok", "off" or "not installed": without a peer the chain API takes every transaction. `signers` are
        those that an edge forwards to.
        """
        self._network = network
        self._journal = journal
        self._keys = keys
        self._lifecycle = lifecycle
        self._gateway = gateway
        self._hub = hub
        self._has_hub = has_hub
        self.why_not = why_not
        """Why nothing may be sponsored now."""
        self._gossip = gossip
        self._execution = execution
        self._rounds = lifecycle.rounds
        self._round_length = round_length
        self._signers = signers
        self._started = time.monotonic()

    def is_ready(self) -> bool:
        """Whether submissions can be accepted and their fate followed."""
        signer_ok = self._keys.signer is None or self._keys.signer.running
        if not self.has_streams() or not self._forwards():
            return False
        return signer_ok and self._journal.failed is None and self.why_not() is None and self._can_pay()

    def has_streams(self) -> bool:
        """Whether clients are let in, and told of what the hub tells: also while nobody signs."""
        is_open = self._gateway.listens and self._gateway.drain is None
        return is_open and (self._hub.connected or not self._has_hub)

    def _forwards(self) -> bool:
        """Whether an edge reaches anybody who signs; a relayer need not."""
        return self._signers is None or self._signers.is_up

    def _can_pay(self) -> bool:
        """Whether any key pays; a relayer without keys only broadcasts."""
        keys = self._keys.relayers.keys
        return not keys or any(self._lifecycle.sponsor.state_of(key).condition == "ok" for key in keys)

    def ready(self, *, for_streams: bool = False) -> dict[str, object]:
        """The body of GET /ready: amounts in atomic units, as text."""
        keys: dict[str, dict[str, str]] = {}
        for shard, key in sorted(self._keys.relayers.by_shard.items()):
            state = self._lifecycle.sponsor.state_of(key)
            keys[str(shard)] = {"address": address.encode(key), "state": state.condition}
            if state.spendable is not None:
                keys[str(shard)] |= {"spendable": str(state.spendable), "missing": str(state.missing)}
        return {"ready": self.has_streams() if for_streams else self.is_ready(), "relayers": keys}

    def health(self) -> dict[str, object]:
        """The body of GET /health."""
        is_behind = self._execution.problem()
        return {
            "status": "ok" if self.is_ready() and not is_behind else "degraded",
            "role": "relayer" if self._signers is None else "edge",
            "serviceVersion": version(),
            "uptimeSeconds": int(time.monotonic() - self._started),
            "profile": self._network.name,
            "chainId": self._network.chain_id,
            "hub": {"connected": self._hub.connected, "last": self._hub.last, "head": self._hub.head},
            "signer": self._keys.signer is not None and self._keys.signer.running,
            "gossip": self._gossip,
            "journal": self._journal.failed or "ok",
            "sponsoring": self.why_not() or "ok",
            "execution": is_behind or "ok",
            "round": self._round(),
            "inFlight": len(self._lifecycle.inflight),
            "connections": self._gateway.connections,
            "draining": self._gateway.drain is not None,
        } | ({} if self._signers is None else {"signers": self._signers.state()})

    def _round(self) -> dict[str, object]:
        """How long a round is taken to be, who says so, and why it may be another length."""
        problem = self._round_length.problem if self._round_length is not None else ""
        told: dict[str, object] = {"ms": self._rounds.ms, "source": self._rounds.source}
        return told | ({"problem": problem} if problem else {})
