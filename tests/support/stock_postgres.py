"""A PostgreSQL as a distribution ships it: initdb's own defaults, none of the gateway's settings.

The gateway's private server turns off what a queue does not want (JIT, say), and so hides what a
DBA with a server of their own would meet. Debian's binaries are used where they are installed,
since those can compile plans; the gateway's own ones otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gateway.postgres.binaries import find_binaries
from gateway.postgres.cluster import HOST, ROLE, Cluster
from gateway.postgres.data_dir import create_data_dir
from gateway.postgres.os_account import choose_account
from gateway.postgres.postmaster import clear_away
from gateway.postgres.server import EmbeddedPostgres

DEBIAN: Final = Path("/usr/lib/postgresql")


def debian_binaries() -> Path | None:
    """The newest of Debian's servers that can compile plans; None where there is none."""
    found = [
        folder / "bin"
        for folder in DEBIAN.glob("[0-9]*")
        if (folder / "bin" / "initdb").exists() and (folder / "lib" / "llvmjit.so").exists()
    ]
    return max(found, key=lambda folder: int(folder.parent.name), default=None)


class StockCluster(Cluster):
    def _initdb_options(self, folder: Path) -> list[str]:
        return [
            f"--pgdata={folder}",
            f"--username={ROLE}",
            "--auth=scram-sha-256",
            f"--pwfile={self._password_file}",
            "--locale=C.UTF-8",  # what a machine has whose people chose none
        ]

    def write_settings(self, port: int, extra: Mapping[str, str]) -> None:
        """Only where it is to be found: everything else is PostgreSQL's own default."""
        places = {"listen_addresses": HOST, "port": str(port), "unix_socket_directories": ""}
        path = self.path / "howdah.conf"
        path.write_text("".join(f"{name} = '{value}'\n" for name, value in places.items()))
        self.account.give(path, 0o600)


class StockPostgres(EmbeddedPostgres):
    def __init__(self, data_dir: Path) -> None:
        super().__init__(data_dir, bin_dir=debian_binaries())

    def prepare(self) -> None:
        create_data_dir(self.data_dir)
        self._lock.acquire()
        path = self.data_dir / "postgres"
        binaries = find_binaries(path, self._bin_dir)
        cluster = StockCluster(self.data_dir, binaries, choose_account(binaries, path))
        clear_away(cluster.path)
        cluster.create()
        self._cluster = cluster
