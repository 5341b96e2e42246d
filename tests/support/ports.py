"""TCP ports for servers of the tests' own."""

from __future__ import annotations

import random
import socket
from pathlib import Path


def lasting_port() -> int:
    """A free port below those that the system gives to clients. One of those may be gone when its
    server comes back: to a client that tries to reach it, and so talks to itself."""
    first, _ = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    for port in random.sample(range(max(first - 12_000, 1024), first), 100):
        if _claim(port):
            return port
    raise RuntimeError(f"no free port below {first}")


def _claim(port: int) -> bool:
    """Takes a port for this process until its end: nobody listens there, and no other test will,
    though our server has not started yet, or is down for a while. False if it is taken."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as claim, socket.socket() as probe:
        try:
            claim.bind(f"\0howdah-test-port-{port}")  # a name that goes with its socket
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        claim.detach()
        return True


def is_listening(port: int) -> bool:
    """Whether a server takes connections at that port of this machine."""
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
