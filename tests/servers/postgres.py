"""A PostgreSQL server of the tests' own: a free port, one temporary directory, nothing left behind."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from pathlib import Path

from servers.process import Server


class Postgres(Server):
    """PostgreSQL with one superuser `millrace` and a password. Use it as a context or call `close`.

    The server refuses to run as root, and then runs as the user `postgres`; so it has a directory of its own
    below the system's one for temporary files, where that user may go.
    """

    def __init__(self) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="millrace-postgres-")
        directory = Path(self._temporary.name)
        prefix: tuple[str, ...] = ()
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            os.chown(directory, user.pw_uid, user.pw_gid)
            # The signal at the parent's death is forgotten when the user changes: it is asked for once more.
            ids = (f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups")
            prefix = ("setpriv", *ids, "setpriv", "--pdeathsig", "KILL")
        super().__init__(directory, prefix)
        self.password = secrets.token_hex(8)
        self._bin = _programs()

    @property
    def url(self) -> str:
        return f"postgresql://millrace:{self.password}@127.0.0.1:{self.port}/postgres"

    def command(self) -> list[str]:
        listen = ["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-p", str(self.port)]
        return [str(self._bin / "postgres"), "-D", str(self._data), *listen, "-c", "shared_buffers=64MB"]

    @property
    def _data(self) -> Path:
        return self._directory / "data"

    def accepts(self) -> bool:
        """Whether it takes sessions: after a kill it first repairs itself."""
        ready = [str(self._bin / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(ready, check=False).returncode == 0

    def start(self) -> None:
        """Make the database at the first time; then return once it answers."""
        self.prepare()
        super().start()

    def prepare(self) -> None:
        """Make the database, unless it is there."""
        if not self._data.exists():
            password = self._directory / "password"
            password.write_text(self.password)
            password.chmod(0o644)
            login = ["-U", "millrace", "-A", "scram-sha-256", f"--pwfile={password}"]
            make = [str(self._bin / "initdb"), "-D", str(self._data), *login, "--no-sync", "--no-locale", "-E", "UTF8"]
            subprocess.run([*self._prefix, *make], check=True, stdout=subprocess.DEVNULL, cwd=self._directory)

    def sql(self, *statements: str) -> str:
        """Run statements behind everybody's back; returns what they print, without decoration."""
        flags = ["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]
        commands = [part for statement in statements for part in ("-c", statement)]
        done = subprocess.run(
            [str(self._bin / "psql"), *flags, *commands, self.url], check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def wait_for_standby(self) -> None:
        """Acknowledge commits from now on only once a standby has them."""
        self.sql("ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")

    def close(self) -> None:
        """Leave nothing running and no file."""
        self.kill()
        self._temporary.cleanup()


class Standby(Postgres):
    """A copy of a running server that follows it, until it is promoted."""

    def __init__(self, primary: Postgres, through: int | None = None) -> None:
        """`through`: the port by which it reaches the other, if that is not its own."""
        super().__init__()
        self._primary = primary
        self._through = through
        self.password = primary.password

    def prepare(self) -> None:
        """Take over all that the other has, unless that was done."""
        if self._data.exists():
            return
        login = f"postgresql://millrace:{self.password}@127.0.0.1:{self._through or self._primary.port}/postgres"
        program = str(self._bin / "pg_basebackup")
        copy = [program, "-d", login, "-D", str(self._data), "-R", "-c", "fast"]
        subprocess.run([*self._prefix, *copy], check=True, stdout=subprocess.DEVNULL, cwd=self._directory)

    def promote(self) -> None:
        """It is the primary from now on."""
        promote = [str(self._bin / "pg_ctl"), "promote", "-D", str(self._data)]
        subprocess.run([*self._prefix, *promote], check=True, stdout=subprocess.DEVNULL, cwd=self._directory)


def _programs() -> Path:
    """Debian keeps the server's programs out of PATH, in one directory per version."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: float(path.parts[-3]))
    found = versions[-1] if versions else Path(shutil.which("postgres") or "postgres")
    return found.parent
