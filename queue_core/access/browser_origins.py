"""Checks by which name a browser came here, because its page may be anybody's.

A browser on this machine is a loopback peer whatever page it shows, and with a DNS name that points
to 127.0.0.1 (rebinding) the page and the gateway even have one origin. So a loopback peer has to
name this machine by a name of its own, or one that the configuration allows. Knows no HTTP.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final
from urllib.parse import urlsplit

from queue_core.access.auth import Peer

ANY: Final = "*"


def host_in(authority: str) -> str | None:
    """The host in `host:port` or `[address]:port`, in lower case; None where there is none."""
    if not authority or any(char in authority for char in "/?#@\\ ,"):
        return None
    try:
        return urlsplit(f"//{authority}").hostname
    except ValueError:
        return None


def is_own_name(host: str) -> bool:
    """Tells whether a name can mean nothing but this machine: nobody else can have it point
    here."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        pass
    name = host.removesuffix(".")
    return name == "localhost" or name.endswith(".localhost") or name == _own_host_name()


@cache
def _own_host_name() -> str:
    return socket.gethostname().lower()


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """Names by which a server may be asked for. Without a list: by a loopback peer, names of this
    machine only; by others, any, as they need a login for whatever is not open to all."""

    names: Sequence[str] | None = None

    def admit(self, authority: str | None, peer: Peer) -> bool:
        host = host_in(authority or "")
        if host is not None and is_own_name(host):
            return True
        if self.names is None:
            return host is not None and not peer.is_loopback
        return ANY in self.names or (host is not None and host in map(str.lower, self.names))


@dataclass(frozen=True, slots=True)
class AllowedOrigins:
    """Pages that may open a WebSocket: those of this machine, for peers from elsewhere those of the
    host that they connect to, and those that are listed. Programs that are no browsers send no
    origin, or that of the server itself."""

    origins: Sequence[str] = ()

    def admit(self, origin: str | None, authority: str | None, peer: Peer) -> bool:
        if origin is None:
            return True  # no browser: a page cannot leave it out
        if ANY in self.origins or origin.lower() in map(str.lower, self.origins):
            return True
        scheme, _, rest = origin.partition("://")
        host = host_in(rest) if scheme in ("http", "https", "ws", "wss") else None
        if host is None:
            return False
        return is_own_name(host) or (not peer.is_loopback and host == host_in(authority or ""))
