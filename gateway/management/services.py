"""What the handlers of the HTTP API work with: the parts of a running gateway, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from time import time

from gateway.acceptor import Acceptor
from gateway.config.keys import Config
from gateway.connections import Connections
from gateway.management.loop_share import LoopShare
from gateway.statistics.sampling import Statistics
from queue_core.manager import Manager


@dataclass(slots=True)
class HttpLogins:
    """Logins over HTTP since the start; each request has one."""

    accepted: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True)
class Services:
    """The parts of one running gateway. `acceptors` fills as listeners open."""

    config: Config
    manager: Manager
    connections: Connections
    counters: Mapping[str, object]  # of each part, by the prefix of its metrics
    acceptors: Mapping[str, Acceptor]
    statistics: Statistics
    loop_share: LoopShare = field(default_factory=LoopShare)
    http_logins: HttpLogins = field(default_factory=HttpLogins)
    started_at: float = field(default_factory=time)
