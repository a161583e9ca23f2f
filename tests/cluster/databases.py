"""PostgreSQL with a synchronous standby, again and again: who is lost is replaced by a new copy of who is left."""

from __future__ import annotations

import asyncio
import subprocess

from cluster.lines import Line
from millrace.runtime.postgres import asyncpg
from servers.postgres import Postgres, Standby

RETRY_SECONDS = 0.5
ENDING_SECONDS = 0.1
ASKING_SECONDS = 5.0
_SESSIONS = """
SELECT application_name, pid, state, wait_event_type, wait_event, now() - backend_start AS age,
    now() - state_change AS since, left(query, 60) AS query
FROM pg_stat_activity WHERE backend_type = 'client backend' ORDER BY backend_start
"""
_RENEWED = "SELECT max(expires_at) FROM relayer_claims.seats"


class Databases:
    """In one of two places is the primary. `lines` lead to the places, `between` from the standby to the primary."""

    def __init__(self) -> None:
        self.primary = Postgres()
        self.standby: Standby | None = None
        self.lost: Postgres | None = None
        """Who was the primary until its standby was promoted."""
        self.place = 0
        """Of the primary."""
        self.between = Line(("database0", "database1"), ("127.0.0.1", self.primary.port))
        self.lines: list[tuple[int, Line]] = []
        self.one = asyncio.Lock()
        """One thing at a time: who loses two servers at once has lost what they knew."""
        self.fail_overs = 0

    async def start(self) -> None:
        """Both run, and every commit waits for the standby."""
        await self.between.start()
        await asyncio.to_thread(self.primary.prepare)
        await self.primary.restart()
        await self._follow()

    async def close(self) -> None:
        """Leave nothing."""
        await self.between.stop()
        for server in (self.primary, self.standby, self.lost):
            if server is not None:
                server.close()

    def at(self, place: int) -> Postgres:
        """The server of a place."""
        assert self.standby is not None
        return self.primary if place == self.place else self.standby

    async def fail_over(self, *, stands_still: bool) -> None:
        """The primary is gone, or only stands still, and its standby is promoted; `bury` the old one."""
        standby = self.standby
        assert standby is not None
        await asyncio.to_thread(self.primary.pause if stands_still else self.primary.kill)
        await asyncio.to_thread(standby.promote)
        self.lost, self.primary, self.standby = self.primary, standby, None
        self.place = 1 - self.place
        self.fail_overs += 1

    async def bury(self, awake: float) -> None:
        """The lost primary is gone for good. If it stood still it is back for so many seconds: nobody has told it."""
        assert self.lost is not None
        if awake:
            await asyncio.to_thread(self.lost.resume)
            await asyncio.sleep(awake)
        await asyncio.to_thread(self.lost.close)  # it deletes a folder, and lines lead through this event loop
        self.lost = None

    async def written(self) -> None:
        """Return once a relayer has written to the server that is the primary now."""
        connection = await asyncpg.connect(self.primary.url)
        try:
            before = await connection.fetchval(_RENEWED)
            while await connection.fetchval(_RENEWED) == before:
                await asyncio.sleep(0.01)
        finally:
            await connection.close()

    async def end_sessions(self, how: str, seconds: float) -> None:
        """What relayers ask the primary is cut off there, or all their sessions are, again and again."""
        connection = await asyncpg.connect(self.primary.url)
        try:
            async with asyncio.timeout(seconds):
                while True:
                    await connection.fetch(
                        f"SELECT {how}(pid) FROM pg_stat_activity WHERE application_name LIKE 'millrace relayer%'"
                    )
                    await asyncio.sleep(ENDING_SECONDS)
        except TimeoutError:
            pass
        finally:
            await connection.close()

    async def sessions(self) -> list[str]:
        """What all sessions of the primary do."""
        connection = await asyncpg.connect(self.primary.url, timeout=ASKING_SECONDS, command_timeout=ASKING_SECONDS)
        try:
            return [" ".join(f"{value}" for value in row.values()) for row in await connection.fetch(_SESSIONS)]
        finally:
            connection.terminate()

    async def replace(self) -> None:
        """A new standby stands where the lost primary did."""
        self.between.to = "127.0.0.1", self.primary.port
        await self._follow()

    async def _follow(self) -> None:
        self.standby = Standby(self.primary, self.between.port)
        while True:
            try:
                await asyncio.to_thread(self.standby.prepare)
                break
            except subprocess.CalledProcessError:  # the line between them was cut meanwhile
                await asyncio.sleep(RETRY_SECONDS)
        await self.standby.restart()
        await asyncio.to_thread(self.primary.wait_for_standby)
        for place, line in self.lines:
            line.to = "127.0.0.1", self.at(place).port
