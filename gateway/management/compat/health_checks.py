"""Health checks: `/api/health/checks/...` answers 200 or 503, which is all that most monitors read;
`/api/healthchecks/node` is the older form.

What RabbitMQ checks of its replicas always passes here: there are none, messages are in PostgreSQL.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from time import time
from typing import Any, Final

from msgspec import Struct

from gateway.commands.certificate_checks import DAY_SECONDS, end_of
from gateway.file_descriptors import Descriptors
from gateway.management.answers import Reply
from gateway.management.api_errors import bad_request
from gateway.management.call import Call, whole_number
from gateway.management.compat.nodes import require_this_node
from gateway.management.node import node_name
from gateway.management.node_listeners import listeners_of, names_of
from gateway.management.routes import NoQuery, Route
from gateway.management.services import Services
from queue_core.manager import Manager

UNITS: Final = {"days": 1, "weeks": 7, "months": 30, "years": 365}
MOST_UNITS: Final = 100_000
NOT_READY: Final = "the database is out of reach or does not keep up; durable publishes wait for it"
MEMORY_IS_SHORT: Final = "memory is short: publishers wait, consumers do not"


class CheckAnswer(Struct, frozen=True, omit_defaults=True):
    """The result of a check; the fields below `reason` belong to some checks only."""

    status: str
    reason: str = ""
    alarms: list[dict[str, str]] = []
    missing: int | list[str] | None = None
    ports: list[int] = []
    protocols: list[str] = []
    certificates: list[dict[str, str]] = []


OK: Final = CheckAnswer("ok")


def _failed(reason: str, **found: Any) -> Reply:
    return Reply(HTTPStatus.SERVICE_UNAVAILABLE, CheckAnswer("failed", reason, **found))


def alarms_of(manager: Manager) -> list[tuple[str, str]]:
    """Lists what keeps publishers waiting: the resource, and what that means."""
    found = []
    if manager.memory.is_short:
        found.append(("memory", MEMORY_IS_SHORT))
    elif not manager.is_ready:
        found.append(("database", NOT_READY))
    return found


async def check_alarms(call: Call[NoQuery, None]) -> CheckAnswer | Reply:
    found = alarms_of(call.manager)
    if not found:
        return OK
    alarms = [{"node": node_name(), "resource": resource} for resource, _ in found]
    return _failed("; ".join(reason for _, reason in found), alarms=alarms)


async def check_readiness(call: Call[NoQuery, None]) -> CheckAnswer | Reply:
    found = alarms_of(call.manager)
    return _failed("; ".join(reason for _, reason in found)) if found else OK


async def pass_always(call: Call[NoQuery, None]) -> CheckAnswer:
    return OK


async def check_port(call: Call[NoQuery, None]) -> CheckAnswer | Reply:
    port = whole_number(call.path["port"], 65535)
    if port is None:
        raise bad_request("a port is a number up to 65535")
    ports = sorted({row.port for row in listeners_of(call.services)})
    if port in ports:
        return OK
    return _failed("no listener has that port", missing=port, ports=ports)


async def check_protocols(call: Call[NoQuery, None]) -> CheckAnswer | Reply:
    active = sorted({row.protocol for row in listeners_of(call.services)})
    known = {name for protocol in active for name in names_of(protocol)}
    wanted = [name.strip().lower() for name in call.path["protocols"].split(",") if name.strip()]
    missing = [name for name in wanted if name not in known]
    if not missing:
        return OK
    return _failed("no listener has that protocol", missing=missing, protocols=active)


async def check_certificates(call: Call[NoQuery, None]) -> CheckAnswer | Reply:
    number, unit = whole_number(call.path["within"], MOST_UNITS), call.path["unit"]
    if unit not in UNITS:
        raise bad_request(f"the unit is one of {', '.join(UNITS)}")
    if number is None:
        raise bad_request(f"the time is a number of {unit}, at most {MOST_UNITS}")
    latest = time() + number * UNITS[unit] * DAY_SECONDS
    found = await asyncio.to_thread(_ending, call.services, latest)
    if not found:
        return OK
    return _failed(f"certificates end within {number} {unit}", certificates=found)


def _ending(services: Services, latest: float) -> list[dict[str, str]]:
    """Finds the listeners whose certificate ends before a time. Reads their files: not for the
    event loop."""
    ending = []
    for name, listener in services.config.listeners.enabled().items():
        if listener.tls is None:
            continue
        try:
            is_late = end_of(listener.tls) < latest
        except (OSError, ValueError):  # gone or broken: nobody can renew by it either
            is_late = True
        if is_late:
            ending.append({"node": node_name(), "listener": name, "file": str(listener.tls.cert)})
    return ending


async def check_connection_limit(call: Call[NoQuery, None]) -> CheckAnswer | Reply:
    descriptors = Descriptors(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    limit = descriptors.limit - descriptors.reserve
    if len(call.services.connections) < limit:
        return OK
    return _failed(f"{limit} connections are open, as many as file descriptors allow")


async def check_node(call: Call[NoQuery, None]) -> CheckAnswer:
    """Answers 200 either way, as RabbitMQ does: the status is in the body."""
    if "node" in call.path:
        require_this_node(call)
    found = alarms_of(call.manager)
    return CheckAnswer("failed", "; ".join(reason for _, reason in found)) if found else OK


Check = Callable[[Call[Any, Any]], Awaitable[CheckAnswer | Reply]]
CHECKS: Final[dict[str, tuple[Check, str]]] = {
    "alarms": (check_alarms, "No node keeps publishers waiting"),
    "local-alarms": (check_alarms, "This node does not keep publishers waiting"),
    "virtual-hosts": (pass_always, "All virtual hosts run"),
    "node-is-quorum-critical": (pass_always, "No queue depends on this node's replica"),
    "node-is-mirror-sync-critical": (pass_always, "No queue depends on this node's mirror"),
    "is-in-service": (pass_always, "The node is in service"),
    "ready-to-serve-clients": (check_readiness, "The node takes durable messages"),
    "below-node-connection-limit": (check_connection_limit, "There is room for a connection"),
    "port-listener/{port}": (check_port, "The node listens on a port"),
    "protocol-listener/{protocols}": (check_protocols, "The node listens for protocols, by commas"),
    "certificate-expiration/{within}/{unit}": (
        check_certificates,
        "No certificate of a listener ends within a time (days, weeks, months, years)",
    ),
}


def _route(path: str, check: Check, summary: str) -> Route:
    return Route(
        method="GET",
        path=path,
        handler=check,
        summary=summary,
        answer=CheckAnswer,
        statuses=(HTTPStatus.OK, HTTPStatus.SERVICE_UNAVAILABLE),
    )


ROUTES: Final = (
    *(
        _route(f"/api/health/checks/{name}", check, summary)
        for name, (check, summary) in CHECKS.items()
    ),
    _route("/api/healthchecks/node", check_node, "Whether this node keeps publishers waiting"),
    _route("/api/healthchecks/node/{node}", check_node, "Whether a node keeps publishers waiting"),
)
