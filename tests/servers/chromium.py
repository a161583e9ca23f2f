"""A headless Chromium (Debian's package) and a folder served to it, over the browser's own DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

PATIENCE = 60.0
ARGUMENTS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--remote-debugging-port=0",
)  # fmt: skip


class Page:
    """One tab."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._ids = count(1)
        self.complaints: list[str] = []
        """Exceptions nobody caught, and what the console was told as an error."""
        self.asked: list[str] = []
        """The address of every request and WebSocket."""

    async def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command and its answer; events that come before it are looked at on the way."""
        number = next(self._ids)
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        while True:
            message = await self._socket.receive_json()
            if message.get("id") == number:
                return dict(message.get("result", message))
            self._hear(message.get("method", ""), message.get("params", {}))

    def _hear(self, event: str, facts: dict[str, Any]) -> None:
        if event in ("Runtime.exceptionThrown", "Log.entryAdded"):
            self.complaints.append(str(facts))
        elif event == "Runtime.consoleAPICalled" and facts["type"] in ("error", "assert"):
            self.complaints.append(str(facts["args"]))
        elif event == "Network.requestWillBeSent":
            self.asked.append(facts["request"]["url"])
        elif event == "Network.webSocketCreated":
            self.asked.append(facts["url"])

    async def value(self, expression: str) -> Any:
        """What an expression is in the page; a promise is waited for."""
        answer = await self.ask("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        return answer.get("result", {}).get("value")

    async def look(self, width: int, *, dark: bool = False, height: int = 900) -> None:
        """A window of this width in CSS pixels, for somebody who likes light or dark colours."""
        await self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        await self.ask(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )

    async def picture(self, file: Path) -> None:
        """The whole page, as a PNG file."""
        height = int(await self.value("document.documentElement.scrollHeight"))
        width = int(await self.value("innerWidth"))
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        answer = await self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        _write(file, base64.b64decode(answer["data"]))

    async def until(self, expression: str) -> Any:
        """Ask until the expression is true; what it is. Raises `TimeoutError` with the page's complaints."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not (found := await self.value(expression)):
                    await asyncio.sleep(0.05)
                return found
        except TimeoutError:
            raise TimeoutError(f"{expression} never came: {self.complaints[-3:]}") from None


@asynccontextmanager
async def opened(url: str, folder: Path) -> AsyncIterator[Page]:
    """The page at `url`, in a browser whose profile is in `folder`."""
    program = shutil.which("chromium")
    assert program, "this test needs Debian's package chromium"
    process = await asyncio.create_subprocess_exec(
        program, *ARGUMENTS, f"--user-data-dir={folder}", "about:blank",
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        port = await _port(folder / "DevToolsActivePort")
        async with aiohttp.ClientSession() as http:
            async with http.get(f"http://127.0.0.1:{port}/json/list") as answer:
                tab = next(tab for tab in await answer.json() if tab["type"] == "page")
            async with http.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                page = Page(socket)
                for domain in ("Runtime", "Log", "Page", "Network"):
                    await page.ask(f"{domain}.enable")
                await page.ask("Page.navigate", url=url)
                yield page
    finally:
        process.terminate()
        await process.wait()


async def _port(file: Path) -> int:
    """Where the browser listens, as soon as it has said so in its profile."""
    async with asyncio.timeout(PATIENCE):
        while not (text := _text(file)):
            await asyncio.sleep(0.05)
    return int(text.split()[0])


def _write(file: Path, data: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)


def _text(file: Path) -> str:
    return file.read_text() if file.exists() else ""


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[str]:
    """The folder over HTTP; its address."""
    app = web.Application()
    app.router.add_static("/", folder)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
