"""The service bus's SDK, in a thread of its own: it encodes in Python, which is too slow for the notifier's loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, TypeVar
from uuid import UUID

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.exceptions import MessageSizeExceededError

from millrace.notifier.brokers import sink
from millrace.notifier.brokers.bus_messages import CONTENT_TYPE, BusMessage, messages
from millrace.notifier.brokers.item import Item
from millrace.runtime.tasks import end_tasks

log = logging.getLogger(__name__)

_TURN = 0.0005  # seconds after which this thread gives way: with the interpreter's 5 ms the hub's p90 doubles
_END_SECONDS = 5.0  # for the thread
_ENVELOPE_BYTES = 1024  # of a batch, for the first message's ids, which the SDK repeats outside and does not count

T = TypeVar("T")
Omit = Callable[[BusMessage, str], None]


class Publisher:
    """Owns the thread and the connection. Public methods are for the event loop of the notifier."""

    def __init__(self, topics: Mapping[str, str], timeout: float, one_session: bool, on_omit: Omit) -> None:
        """`on_omit` is called in the publisher's thread, before a message too large for the bus is passed over."""
        self._topics = topics
        self._one_session = one_session
        self._lanes = {name: _Lane(timeout, one_session, on_omit) for name in topics.values()}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="service-bus", daemon=True)
        self._turn_before = sys.getswitchinterval()
        sys.setswitchinterval(_TURN)
        self._thread.start()

    async def connect(self, connection_string: str) -> None:
        """Connect anew. Raises what the SDK raises for a broker that is not there or refuses the key."""
        await self._call(self._connect(connection_string))

    async def publish(self, items: list[Item]) -> int:
        """Return once the bus has accepted all messages of these; tells how many went out.

        After a failure the same items are to be given again; what the bus accepted of them is not sent twice.
        """
        return await self._call(self._publish(items))

    async def disconnect(self) -> None:
        """Leave the bus, within two seconds."""
        await self._call(self._disconnect())

    async def close(self) -> None:
        """End the thread, within a few seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                await self._call(self._shut_down())
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join, _END_SECONDS)
        sys.setswitchinterval(self._turn_before)
        if not self._thread.is_alive():
            self._loop.close()

    async def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    # In the thread.

    async def _connect(self, connection_string: str) -> None:
        logging.getLogger("azure").setLevel(logging.ERROR)  # it tells at length what is raised anyway
        # No attempts of its own: the sink tries again, and knows what was accepted.
        client = ServiceBusClient.from_connection_string(connection_string, retry_total=0)
        opening = [lane.open(client.get_topic_sender(name)) for name, lane in self._lanes.items()]
        async with asyncio.timeout(sink.OPEN_SECONDS):
            for outcome in await asyncio.gather(*opening, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    raise outcome

    async def _publish(self, items: list[Item]) -> int:
        lanes = self._lanes.values()
        stream: Iterable[BusMessage] = (message for item in items for message in messages(item, self._topics))
        if self._one_session:  # what may share a batch comes together; each session stays in order
            stream = sorted(stream, key=lambda message: message.session_id)
        try:
            for message in stream:
                await self._lanes[message.topic].add(message)
            for lane in lanes:
                await lane.flush()
            for lane in lanes:
                await lane.settled()
        except Exception:  # what other topics accept in these moments need not be sent again
            await asyncio.gather(*(lane.settled() for lane in lanes), return_exceptions=True)
            raise
        finally:
            for lane in lanes:
                await lane.clear()
        return sum(lane.finish() for lane in lanes)

    async def _disconnect(self) -> None:
        await asyncio.gather(*(lane.close() for lane in self._lanes.values()))

    async def _shut_down(self) -> None:
        """End whatever still runs, as far as it lets itself be ended."""
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=sink.CLOSE_SECONDS)


class _Lane:
    """One topic: a batch that is being filled, and the one before it, which is on its way."""

    def __init__(self, timeout: float, one_session: bool, on_omit: Omit) -> None:
        self._timeout = timeout
        self._one_session = one_session
        self._on_omit = on_omit
        self._accepted: set[str] = set()  # ids of the messages of the items at hand that the bus has
        self._omitted: set[str] = set()  # and of those that were kept because they are too large
        self._sender: ServiceBusSender
        self._room = 0  # bytes in a batch
        self._batch: ServiceBusMessageBatch | None = None
        self._in_batch: list[BusMessage] = []
        self._under_way: asyncio.Task[None] | None = None

    async def open(self, sender: ServiceBusSender) -> None:
        """Attach the sender to its topic."""
        self._sender = sender
        await sender.__aenter__()
        self._room = (await sender.create_message_batch()).max_size_in_bytes - _ENVELOPE_BYTES

    async def close(self) -> None:
        """Detach. It may hang or fail: then the connection is left to itself."""
        try:
            async with asyncio.timeout(sink.CLOSE_SECONDS):
                await self._sender.close()
        except Exception as error:
            log.debug("no clean end", extra={"why": str(error)})

    async def add(self, message: BusMessage) -> None:
        """Put a message into the batch; waits for room while the batch before is on its way."""
        if message.message_id in self._accepted:
            return
        if self._one_session and self._in_batch and self._in_batch[0].session_id != message.session_id:
            await self.flush()
        if await self._fits(message):
            return
        if self._in_batch:
            await self.flush()
            if await self._fits(message):
                return
        if not await self._fits(self._omit(message)):
            raise ValueError(f"message {message.message_id} is too large even without its body")

    async def _fits(self, message: BusMessage) -> bool:
        if self._batch is None:
            self._batch = await self._sender.create_message_batch(max_size_in_bytes=self._room)
        try:
            self._batch.add_message(_outgoing(message))
        except ValueError:  # the SDK's MessageSizeExceededError is one
            return False
        self._in_batch.append(message)
        return True

    async def flush(self) -> None:
        """Send the batch once the one before it was accepted."""
        await self.settled()
        if self._in_batch:
            assert self._batch is not None
            self._under_way = asyncio.create_task(self._send(self._batch, self._in_batch))
            self._batch, self._in_batch = None, []

    async def settled(self) -> None:
        """Return once the bus accepted what is on its way; raises when it did not."""
        task, self._under_way = self._under_way, None
        if task is not None:
            await task

    async def clear(self) -> None:
        """Forget what was not accepted."""
        task, self._under_way = self._under_way, None
        if task is not None:
            await end_tasks([task])
        self._batch, self._in_batch = None, []

    def finish(self) -> int:
        """The items at hand are done; tells how many messages they were."""
        count = len(self._accepted)
        self._accepted.clear()
        self._omitted.clear()
        return count

    async def _send(self, batch: ServiceBusMessageBatch, sent: list[BusMessage]) -> None:
        try:
            await self._transfer(batch, sent)
        except MessageSizeExceededError:  # the bus takes less than it told
            for message in sent:
                try:
                    await self._transfer(await self._alone(message), [message])
                except MessageSizeExceededError:
                    await self._transfer(await self._alone(self._omit(message)), [message])

    async def _transfer(self, batch: ServiceBusMessageBatch, sent: list[BusMessage]) -> None:
        async with asyncio.timeout(self._timeout):
            await self._sender.send_messages(batch, timeout=self._timeout)
        self._accepted.update(message.message_id for message in sent)

    async def _alone(self, message: BusMessage) -> ServiceBusMessageBatch:
        batch = await self._sender.create_message_batch(max_size_in_bytes=self._room)
        batch.add_message(_outgoing(message))
        return batch

    def _omit(self, message: BusMessage) -> BusMessage:
        """What goes out in place of a message that is too large, which is kept elsewhere."""
        reason = f"{len(message.body)} bytes are too large for the bus"
        if message.message_id not in self._omitted:
            self._on_omit(message, reason)
            self._omitted.add(message.message_id)
        return message.without_body(reason)


def _outgoing(message: BusMessage) -> ServiceBusMessage:
    properties: dict[str | bytes, int | float | bytes | bool | str | UUID] = {}
    properties.update(message.properties)
    return ServiceBusMessage(
        message.body,
        subject=message.subject,
        session_id=message.session_id,
        message_id=message.message_id,
        content_type=CONTENT_TYPE,
        application_properties=properties,
    )
