"""The process behind `service_bus.Bus`: an AMQP 1.0 broker that a service bus SDK takes for the cloud's.

What the SDK needs and nothing more: SASL ANONYMOUS, put-token on `$cbs` with the token's HMAC checked, topics whose
subscriptions may have sessions, single messages and batches, peek-lock settlement, a maximum message size, and
refusals on demand. What was accepted is in an SQLite file before the sender is told, so a kill loses none of it.

Usage: -m servers.service_bus_broker DIRECTORY PORT, with `config.json` in the directory (see `Config`).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import sys
import time
import urllib.parse
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from proton import Condition, Connection, Delivery, Endpoint, Event, Handler, Link, Message, symbol, timestamp, ulong
from proton.reactor import Container

from servers.service_bus_store import FILE_NAME, Config, Queue, Storage, Stored, batched, decode

FAULTS = "faults"
"""File of conditions, one a line: each transfer that comes is refused with the first line, which then goes."""

CBS = "$cbs"
CREDIT = 500
SESSION_FILTER = symbol("com.microsoft:session-filter")
LOCKED_UNTIL = symbol("com.microsoft:locked-until-utc")
OPERATION_TIMEOUT = symbol("com.microsoft:timeout")
MAX_BATCH_SIZE = symbol("com.microsoft:max-message-batch-size")
LOCK_SECONDS = 300  # told to receivers; a lock here ends with its link
SESSION_WAIT_SECONDS = 65.0  # how long a receiver may wait for a session, unless it says otherwise
TICKS_AT_1970 = 621_355_968_000_000_000  # of 100 ns
TOO_LARGE = "amqp:link:message-size-exceeded"


class Refused(Exception):
    """A message or a link is not taken; `condition` is AMQP's name for the reason."""

    def __init__(self, condition: str, text: str) -> None:
        super().__init__(text)
        self.condition = Condition(condition, text, {symbol("tracking"): text})  # without info the SDK hangs


class Receiving:
    """What a receiver's link has, kept as the link's context."""

    def __init__(self, queue: Queue, session: str | None) -> None:
        self.queue = queue
        self.session = session
        self.locked: dict[str, Stored] = {}  # by delivery tag


class Broker(Handler):
    """Answers one event of the connection engine after the other."""

    def __init__(self, directory: Path, port: int) -> None:
        super().__init__()
        self._config = msgspec.json.decode((directory / "config.json").read_bytes(), type=Config)
        self._url = f"127.0.0.1:{port}"
        self._faults = directory / FAULTS
        self._storage = Storage(directory / FILE_NAME)
        self._topics = {name.lower(): topic for name, topic in self._config.topics.items()}
        self._queues = {
            f"{name}/subscriptions/{sub}".lower(): Queue(f"{name}/subscriptions/{sub}", spec.sessions, self._storage)
            for name, topic in self._topics.items()
            for sub, spec in topic.subscriptions.items()
        }
        self._audiences: dict[str, set[str]] = {}  # connection -> what its tokens are good for
        self._contexts: dict[Link, Receiving] = {}

    # Connections, sessions, links.

    def on_reactor_init(self, event: Event) -> None:
        event.container.listen(self._url)

    def on_connection_remote_open(self, event: Event) -> None:
        event.connection.open()

    def on_session_remote_open(self, event: Event) -> None:
        event.session.open()

    def on_session_remote_close(self, event: Event) -> None:
        event.session.close()

    def on_connection_remote_close(self, event: Event) -> None:
        self._forget(event.connection)
        event.connection.close()

    def on_transport_closed(self, event: Event) -> None:
        self._forget(event.connection)

    def on_link_remote_open(self, event: Event) -> None:
        link = event.link
        try:
            if link.is_sender:
                self._attach_receiver(link, event)
            else:
                self._attach_sender(link)
        except Refused as refusal:
            link.condition = refusal.condition
            link.open()
            link.close()

    def on_link_remote_close(self, event: Event) -> None:
        self._release(event.link)
        event.link.close()

    on_link_remote_detach = on_link_remote_close

    def _forget(self, connection: Connection) -> None:
        if connection is None:
            return
        self._audiences.pop(connection.remote_container, None)
        for link in [link for link in self._contexts if link.connection == connection]:
            self._release(link)

    def _attach_sender(self, link: Link) -> None:
        """A client sends to us."""
        address = link.remote_target.address
        if address != CBS:
            self._authorised(link, address)
            if _entity(address) not in self._topics:
                raise Refused("amqp:not-found", f"no topic {_entity(address)}")
        link.source.copy(link.remote_source)
        link.target.copy(link.remote_target)
        link.max_message_size = self._config.max_message_bytes
        link.properties = {MAX_BATCH_SIZE: ulong(self._config.max_message_bytes)}
        link.open()
        link.flow(CREDIT)

    def _attach_receiver(self, link: Link, event: Event) -> None:
        """A client receives from us."""
        address = link.remote_source.address
        link.source.address = address
        link.target.address = link.remote_target.address
        link.snd_settle_mode = link.remote_snd_settle_mode
        link.rcv_settle_mode = link.remote_rcv_settle_mode
        if address == CBS:
            link.open()
            return
        self._authorised(link, address)
        queue = self._queues.get(_entity(address))
        if queue is None:
            raise Refused("amqp:not-found", f"no subscription {_entity(address)}")
        filters = _filters(link)
        if queue.sessions != (SESSION_FILTER in filters):
            raise Refused("amqp:not-allowed", "sessions are needed here" if queue.sessions else "no sessions here")
        self._contexts[link] = Receiving(queue, None)
        if queue.sessions:
            queue.queueing.append(link)
            self._grant(queue)
            if link in queue.queueing:
                milliseconds = (link.remote_properties or {}).get(OPERATION_TIMEOUT)
                wait = SESSION_WAIT_SECONDS if milliseconds is None else milliseconds / 1000
                event.reactor.schedule(wait, _Overdue(self, link))
        else:
            link.open()
            queue.links.append(link)

    def _grant(self, queue: Queue) -> None:
        """Attach the receivers for which there is a session now."""
        for link in list(queue.queueing):
            session = queue.claim(_filters(link)[SESSION_FILTER], link)
            if session is None:
                continue
            queue.queueing.remove(link)
            self._contexts[link].session = session
            link.source.filter.put_dict({SESSION_FILTER: session})
            ticks = TICKS_AT_1970 + int((time.time() + LOCK_SECONDS) * 10_000_000)
            link.properties = {LOCKED_UNTIL: ticks}
            link.open()
            queue.links.append(link)

    def give_up(self, link: Link) -> None:
        """A receiver waited long enough for a session."""
        context = self._contexts.get(link)
        if context is not None and link in context.queue.queueing:
            self._release(link)
            link.condition = Condition("com.microsoft:timeout", "no session has messages")
            link.properties = {OPERATION_TIMEOUT: 0}  # without these the SDK logs an error
            link.source.filter.put_dict({SESSION_FILTER: ""})
            link.open()
            link.close()

    def _release(self, link: Link) -> None:
        context = self._contexts.pop(link, None)
        if context is None:
            return
        context.queue.leave(link)
        for stored in context.locked.values():
            context.queue.put(stored)
        self._serve(context.queue)

    # Tokens.

    def _put_token(self, link: Link, raw: bytes) -> None:
        request = Message()
        request.decode(raw)
        properties = request.properties or {}
        token = request.body if isinstance(request.body, str) else bytes(request.body).decode()
        valid = properties.get("operation") == "put-token" and self._is_signed(token)
        if valid:
            granted = self._audiences.setdefault(link.connection.remote_container, set())
            granted.add(_entity(properties["name"]))
        answer = Message(
            correlation_id=request.id,
            properties={
                "status-code": 202 if valid else 401,
                "status-description": "Accepted" if valid else "InvalidSignature: the token has an invalid signature",
            },
        )
        for other in _links(link.connection):
            if other.is_sender and other.remote_source.address == CBS:
                other.send(answer)

    def _is_signed(self, token: str) -> bool:
        """`SharedAccessSignature sr=..&sig=..&se=..&skn=..`; the signature is of resource and expiry."""
        kind, _, rest = token.partition(" ")
        parts = dict(urllib.parse.parse_qsl(rest))
        signed = urllib.parse.quote_plus(parts.get("sr", "")) + "\n" + parts.get("se", "")
        digest = hmac.new(self._config.key.encode(), signed.encode(), hashlib.sha256).digest()
        return (
            kind == "SharedAccessSignature"
            and parts.get("skn") == self._config.key_name
            and hmac.compare_digest(base64.b64encode(digest).decode(), parts.get("sig", ""))
            and int(parts.get("se", "0")) > time.time()
        )

    def _authorised(self, link: Link, address: str) -> None:
        entity = _entity(address)
        granted = self._audiences.get(link.connection.remote_container, set())
        if not any(not audience or (entity + "/").startswith(audience + "/") for audience in granted):
            raise Refused("amqp:unauthorized-access", f"no token for {entity}")

    # Messages.

    def on_delivery(self, event: Event) -> None:
        delivery, link = event.delivery, event.link
        if link.is_sender:
            self._settle(link, delivery)
        elif delivery.readable and not delivery.partial:
            raw = link.recv(delivery.pending)
            link.advance()
            if link.state & Endpoint.LOCAL_CLOSED:  # it was sent before the client knew
                delivery.settle()
                return
            self._receive(link, delivery, bytes(raw))
            link.flow(1)

    def _receive(self, link: Link, delivery: Delivery, raw: bytes) -> None:
        try:
            if link.remote_target.address == CBS:
                self._put_token(link, raw)
            else:
                self._accept(link, raw)
        except Refused as refusal:
            if refusal.condition.name == TOO_LARGE:  # the cloud's answer to it
                link.condition = refusal.condition
                link.close()
                return
            delivery.local.condition = refusal.condition
            delivery.update(Delivery.REJECTED)
        else:
            delivery.update(Delivery.ACCEPTED)
        delivery.settle()

    def _accept(self, link: Link, raw: bytes) -> None:
        name = _entity(link.remote_target.address)
        topic = self._topics[name]
        if len(raw) > self._config.max_message_bytes:
            raise Refused(TOO_LARGE, f"a message of {len(raw)} bytes")
        self._refuse_on_demand()
        messages = [(decode(part), part) for part in batched(raw) or [raw]]
        sessions = {message.group_id for message, _ in messages}
        if topic.partitioned and len(sessions) > 1:
            raise Refused("amqp:not-allowed", "a batch with several session ids on a partitioned topic")
        if None in sessions and any(subscription.sessions for subscription in topic.subscriptions.values()):
            raise Refused("amqp:not-allowed", "a message without a session id")
        paths = [f"{name}/subscriptions/{subscription}" for subscription in topic.subscriptions]
        queues = [self._queues[path.lower()] for path in paths]
        stored = self._storage.add(name, [queue.path for queue in queues], messages)
        for queue in queues:
            for one in stored:
                queue.put(one)
            self._serve(queue)

    def _refuse_on_demand(self) -> None:
        try:
            conditions = self._faults.read_text().splitlines()
        except FileNotFoundError:
            return
        if len(conditions) > 1:
            self._faults.write_text("\n".join(conditions[1:]))
        else:
            self._faults.unlink()
        raise Refused(conditions[0], "refused on demand")

    # To receivers.

    def on_link_flow(self, event: Event) -> None:
        context = self._contexts.get(event.link)
        if context is not None:
            self._serve(context.queue)

    def _serve(self, queue: Queue) -> None:
        self._grant(queue)
        for link in queue.links:
            self._pump(link, self._contexts[link])
            link.drained()  # says so when the receiver asked for it

    def _pump(self, link: Link, context: Receiving) -> None:
        while link.credit > 0 and link.state & Endpoint.LOCAL_ACTIVE:
            stored = context.queue.take(context.session)
            if stored is None:
                return
            message = decode(stored.raw)
            now = int(time.time() * 1000)
            message.annotations = {
                **(message.annotations or {}),
                symbol("x-opt-sequence-number"): ulong(stored.sequence),
                symbol("x-opt-enqueued-time"): timestamp(now),
                symbol("x-opt-locked-until"): timestamp(now + 1000 * LOCK_SECONDS),
            }
            tag = uuid.uuid4().hex[:16]  # the SDK wants sixteen
            delivery = link.delivery(tag)
            link.stream(message.encode())
            link.advance()
            if link.snd_settle_mode == Link.SND_SETTLED:
                delivery.settle()
                context.queue.done(stored)
            else:
                context.locked[tag] = stored

    def _settle(self, link: Link, delivery: Delivery) -> None:
        context = self._contexts.get(link)
        if not delivery.updated or not delivery.remote_state or context is None:
            return
        stored = context.locked.pop(delivery.tag, None)
        outcome = delivery.remote_state
        if stored is not None:
            if outcome in (Delivery.RELEASED, Delivery.MODIFIED):
                context.queue.put(stored)
            else:
                context.queue.done(stored)
        delivery.update(outcome)  # the receiver waits for the echo
        delivery.settle()
        self._serve(context.queue)


class _Overdue:
    """A timer's handler."""

    def __init__(self, broker: Broker, link: Link) -> None:
        self._broker = broker
        self._link = link

    def on_timer_task(self, _: Event) -> None:
        self._broker.give_up(self._link)


def _entity(address: str) -> str:
    """`amqps://host:port/Topic/Subscriptions/sub` -> `topic/subscriptions/sub`."""
    path = urllib.parse.urlsplit(address).path if "://" in address else address
    return path.strip("/").lower()


def _filters(link: Link) -> dict[Any, Any]:
    data = link.remote_source.filter
    data.rewind()
    return data.get_dict() if data.next() else {}


def _links(connection: Connection) -> Iterator[Link]:
    link = connection.link_head(0)
    while link:
        yield link
        link = link.next(0)


if __name__ == "__main__":
    Container(Broker(Path(sys.argv[1]), int(sys.argv[2]))).run()
