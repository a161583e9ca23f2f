"""A consumer of the service bus: the real SDK, session after session."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusConnectionError

from servers.service_bus import Bus

from ..helpers import WAIT

_RECEIVERS = 4
_IDLE_SECONDS = 0.3  # without a message, after which a session counts as empty
_CONNECTS = 3


class Received(NamedTuple):
    """A message as a consumer sees it."""

    session: str
    message_id: str
    subject: str
    properties: dict[str, str]
    body: bytes


async def receive_all(bus: Bus, topic: str) -> list[Received]:
    """Everything in a topic's subscription, several sessions at a time, until no session has anything.

    In the order in which the bus took it: of a receiver that waits for the processor another takes the session over,
    and gets what was on its way to the first behind what came after it.
    """
    received: list[Received] = []
    async with ServiceBusClient.from_connection_string(bus.connection_string(), retry_total=0) as client:
        await asyncio.gather(*(_receive(client, topic, received) for _ in range(_RECEIVERS)))
    places: dict[str, int] = {}
    for place, message in enumerate(bus.accepted()):
        places.setdefault(message.message_id, place)
    return sorted(received, key=lambda message: places[message.message_id])


async def _receive(client: ServiceBusClient, topic: str, received: list[Received]) -> None:
    failures = 0  # the library, told not to try again on its own, fails now and then to connect to a bus just restarted
    while True:
        receiver = client.get_subscription_receiver(
            topic, "all", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=_IDLE_SECONDS
        )
        connected = False
        try:
            async with receiver:
                connected = True
                while messages := await receiver.receive_messages(200, max_wait_time=_IDLE_SECONDS):
                    for message in messages:
                        received.append(received_from(message))
                        await receiver.complete_message(message)
        except OperationTimeoutError:
            return
        except ServiceBusConnectionError:
            failures += 1
            if connected or failures == _CONNECTS:
                raise


def received_from(message: ServiceBusReceivedMessage) -> Received:
    """The message as tests look at it."""
    properties = {_text(name): _text(value) for name, value in (message.application_properties or {}).items()}
    assert message.session_id is not None and message.message_id is not None and message.subject is not None
    assert message.content_type == "application/protobuf"
    return Received(message.session_id, message.message_id, message.subject, properties, b"".join(message.body))


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


async def accepted(bus: Bus, count: int) -> list[str]:
    """The message ids that the bus took, once there are `count`."""
    async with asyncio.timeout(WAIT):
        while True:
            ids = [message.message_id for message in bus.accepted()]
            if len(ids) >= count:
                return ids
            await asyncio.sleep(0.02)
