"""Nodes and their memory: `/api/nodes`. What Erlang alone has is zero, or has our nearest thing."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import threading
from pathlib import Path
from time import time
from typing import Any, Final

from msgspec import Struct

from gateway.management.api_errors import not_found
from gateway.management.call import Call
from gateway.management.compat.broker_figures import node_figures
from gateway.management.compat.message_stats import Stats
from gateway.management.lists import ColumnsQuery, Listing, ListQuery
from gateway.management.node import node_name
from gateway.management.roles import Role
from gateway.management.routes import NoQuery, Route
from gateway.management.services import Services
from queue_core.access.mechanisms import BEST_FIRST
from queue_core.routing.exchanges import ExchangeKind

RATES_MODE: Final = "basic"
STATM: Final = Path("/proc/self/statm")
DESCRIPTORS: Final = Path("/proc/self/fd")
MOST_COUNTED_DESCRIPTORS: Final = 1000  # are looked up one by one; more are told by connections


class NodeRow(Struct, frozen=True):
    """One node of RabbitMQ's list. `mem_used`, `mem_limit` and `mem_alarm` are what clients make
    the gateway hold, and above which publishers wait."""

    name: str
    type: str
    running: bool
    uptime: int  # milliseconds
    run_queue: int
    processors: int
    os_pid: str
    fd_used: int
    fd_total: int
    sockets_used: int
    sockets_total: int
    proc_used: int  # threads
    proc_total: int
    mem_used: int
    mem_limit: int
    mem_alarm: bool
    mem_calculation_strategy: str
    disk_free: int  # where data_dir is
    disk_free_limit: int  # none: PostgreSQL says when its disk is full
    disk_free_alarm: bool
    rates_mode: str
    enabled_plugins: list[str]
    being_drained: bool
    partitions: list[str]
    cluster_links: list[str]
    net_ticktime: int
    auth_mechanisms: list[dict[str, Any]]
    exchange_types: list[dict[str, Any]]
    applications: list[dict[str, str]]
    contexts: list[dict[str, Any]]
    config_files: list[str]
    log_files: list[str]
    db_dir: str
    connection_created: int
    connection_created_details: Stats
    connection_closed: int
    connection_closed_details: Stats
    channel_created: int
    channel_created_details: Stats
    channel_closed: int
    channel_closed_details: Stats
    queue_declared: int
    queue_declared_details: Stats
    queue_created: int
    queue_created_details: Stats
    queue_deleted: int
    queue_deleted_details: Stats
    msg_store_read_count: int  # messages read back from PostgreSQL
    msg_store_read_count_details: Stats
    msg_store_write_count: int  # messages committed to it
    msg_store_write_count_details: Stats


class MemoryAnswer(Struct, frozen=True):
    """Bytes by kind; `total` by three ways of counting, as in RabbitMQ."""

    memory: dict[str, Any]


def exchange_types() -> list[dict[str, Any]]:
    """Lists the types of exchanges."""
    return [
        {"name": kind.value, "description": f"exchange type {kind.value}", "enabled": True}
        for kind in ExchangeKind
    ]


def resident_bytes() -> int:
    """Returns the memory that the process has in use, as the system counts it."""
    try:
        return int(STATM.read_text().split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):  # no Linux: the most that there ever was
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _open_files(connections: int) -> int:
    """Counts open files, or estimates them by the connections where there are many: a look at all
    of them takes milliseconds then."""
    if connections > MOST_COUNTED_DESCRIPTORS:
        return connections
    try:
        return len(os.listdir(DESCRIPTORS))
    except OSError:
        return connections


def _free_bytes(folder: str) -> int:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return 0


async def this_node(services: Services) -> NodeRow:
    """Describes the node that answers."""
    memory, connections = services.manager.memory, len(services.connections)
    data_dir = str(services.config.data_dir)
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    processes = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    return NodeRow(
        name=node_name(),
        type="disc",
        running=True,
        uptime=int((time() - services.started_at) * 1000),
        run_queue=0,
        processors=os.cpu_count() or 1,
        os_pid=str(os.getpid()),
        fd_used=_open_files(connections),
        fd_total=files,
        sockets_used=connections,
        sockets_total=files,
        proc_used=threading.active_count(),
        proc_total=max(processes, 0) or 1,
        mem_used=memory.used,
        mem_limit=memory.mark,
        mem_alarm=memory.is_short,
        mem_calculation_strategy="allocated",
        disk_free=await asyncio.to_thread(_free_bytes, data_dir),
        disk_free_limit=0,
        disk_free_alarm=False,
        rates_mode=RATES_MODE,
        enabled_plugins=[],
        being_drained=False,
        partitions=[],
        cluster_links=[],
        net_ticktime=0,
        auth_mechanisms=[{"name": name, "enabled": True} for name in BEST_FIRST],
        exchange_types=exchange_types(),
        applications=[],
        contexts=[],
        config_files=[],
        log_files=[],
        db_dir=data_dir,
        **node_figures(services),
    )


def require_this_node(call: Call[Any, Any]) -> None:
    """Raises 404 unless the path names this node."""
    if call.path["node"] != node_name():
        raise not_found(f"there is no node '{call.path['node']}'; this one is '{node_name()}'")


async def list_nodes(call: Call[ListQuery, None]) -> Listing[NodeRow]:
    return Listing([await this_node(call.services)], lambda row: row)


async def show(call: Call[ColumnsQuery, None]) -> NodeRow:
    require_this_node(call)
    return await this_node(call.services)


async def show_memory(call: Call[NoQuery, None]) -> MemoryAnswer:
    require_this_node(call)
    memory, resident = call.manager.memory, resident_bytes()
    total = {"erlang": memory.used, "rss": resident, "allocated": resident}
    return MemoryAnswer({**memory.kinds(), "total": total, "strategy": "allocated"})


ROUTES: Final = (
    Route(
        method="GET",
        path="/api/nodes",
        handler=list_nodes,
        summary="All nodes",
        role=Role.MONITORING,
        query=ListQuery,
        answer=NodeRow,
        is_list=True,
    ),
    Route(
        method="GET",
        path="/api/nodes/{node}",
        handler=show,
        summary="One node",
        role=Role.MONITORING,
        query=ColumnsQuery,
        answer=NodeRow,
    ),
    Route(
        method="GET",
        path="/api/nodes/{node}/memory",
        handler=show_memory,
        summary="The memory that clients make a node hold, by kind",
        role=Role.MONITORING,
        answer=MemoryAnswer,
    ),
)
