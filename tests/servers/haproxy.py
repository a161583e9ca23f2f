"""HAProxy as the project deploys it: its own sample before several edges, without TLS."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from servers.process import Server

SAMPLE = Path(__file__).parents[2] / "deploy" / "proxy" / "haproxy.cfg"
FOLDERS = "/usr/sbin:/usr/local/sbin:/usr/bin"  # Debian keeps it where users do not look


class HAProxy(Server):
    """`edges`: host, WebSocket port and HTTP port of each."""

    def __init__(self, directory: Path, edges: Sequence[tuple[str, int, int]]) -> None:
        super().__init__(directory)
        text = re.sub(r"bind :443 .*", f"bind 127.0.0.1:{self.port}", SAMPLE.read_text())
        text = text.replace("maxconn 20000", "maxconn 500")
        for backend, place in (("relayer_ws", 1), ("relayer", 2)):
            servers = "".join(
                f"    server edge-{number} {edge[0]}:{edge[place]} check port {edge[2]}\n"
                for number, edge in enumerate(edges)
            )
            begin = text.index(f"backend {backend}\n")
            end = text.index("    server one", begin)
            after = text.index("\n", end) + 1
            before = text[begin:end].replace("GET /health", "GET /ready") + "    balance leastconn\n"
            streams = before.replace(backend, f"{backend}_streams", 1).replace("/ready", "/ready?for=streams")
            text = text[:begin] + before + servers + streams + servers + text[after:]
            line = next(line for line in text.splitlines() if line.startswith(f"    use_backend {backend} if"))
            to_streams = line.replace(backend, f"{backend}_streams", 1) + f" {{ nbsrv({backend}) eq 0 }}"
            text = text.replace(line, f"{to_streams}\n{line}")
        (directory / "haproxy.cfg").write_text(text)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        # In one process: a master and a worker would be two to kill.
        return [shutil.which("haproxy", path=FOLDERS) or "haproxy", "-db", "-f", str(self._directory / "haproxy.cfg")]
