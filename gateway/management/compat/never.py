"""Routes of RabbitMQ that Howdah will not have: each answers 404 and says why, so that nobody looks
for a mistake in the URL."""

from __future__ import annotations

from typing import Any, Final

from gateway.management.api_errors import not_found
from gateway.management.call import Call
from gateway.management.routes import Handler, NoQuery, Route

NO_REPLICAS: Final = "queues have no replicas here: PostgreSQL replicates what they hold"
NO_BALANCE: Final = "there are no queue leaders to move: messages are in PostgreSQL"
NO_RESET: Final = "there are no statistics to reset: counters go on until the gateway stops"
NO_ETS: Final = "there are no ETS tables: the gateway is no Erlang program; see /memory"
NO_VHOST_START: Final = "virtual hosts run with their gateway, and cannot be started alone"
NO_OAUTH: Final = "there is no OAuth 2.0 here: log in with HTTP Basic"

NEVER: Final = (
    ("POST", "/api/queues/quorum/{vhost}/{name}/replicas/add", NO_REPLICAS),
    ("DELETE", "/api/queues/quorum/{vhost}/{name}/replicas/delete", NO_REPLICAS),
    ("POST", "/api/queues/quorum/replicas/on/{node}/grow", NO_REPLICAS),
    ("DELETE", "/api/queues/quorum/replicas/on/{node}/shrink", NO_REPLICAS),
    ("GET", "/api/queues/quorum/{vhost}/{name}/status", NO_REPLICAS),
    ("POST", "/api/rebalance/queues", NO_BALANCE),
    ("DELETE", "/api/reset", NO_RESET),
    ("DELETE", "/api/reset/{node}", NO_RESET),
    ("GET", "/api/nodes/{node}/memory/ets", NO_ETS),
    ("POST", "/api/vhosts/{vhost}/start/{node}", NO_VHOST_START),
    ("GET", "/api/auth", NO_OAUTH),
)


def _refusal(reason: str) -> Handler:
    async def refuse(call: Call[NoQuery, None]) -> Any:
        raise not_found(reason)

    return refuse


ROUTES: Final = tuple(
    Route(method=method, path=path, handler=_refusal(reason), summary=reason, is_never=True)
    for method, path, reason in NEVER
)
