"""Runs the gateway: database, manager, listeners, `ready`, and the way down.

Answers for the order in which parts start and stop. It must not know what any of them does.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Mapping
from contextlib import AsyncExitStack

from gateway.acceptor import Acceptor, ListenerCounters
from gateway.adapters import FORMS, Adapters, manager_settings
from gateway.config.keys import Config, require_safe_listeners
from gateway.connections import Connections
from gateway.database import DatabaseError, open_database, reaching
from gateway.definitions import import_at_start
from gateway.file_descriptors import Descriptors, Share, allow_many_files, end_oldest
from gateway.garbage_collector import CollectorCounters, PlannedCollector, tune_collector
from gateway.listeners import announcement, open_listener
from gateway.machine_memory import give_back, keep_large_blocks_apart
from gateway.management.listener import Management
from gateway.management.services import Services
from gateway.reload import Reloading
from gateway.standby import serve_in_turn
from gateway.statistics.sampling import Statistics
from gateway.tls import require_certificates
from gateway.tls_handshakes import TlsCounters
from queue_core.errors import StoreUnavailable
from queue_core.manager import Manager
from queue_core.store.nodes.cluster_node import ClusterNode
from queue_core.store.ownership import OwnershipLost, Setback

logger = logging.getLogger(__name__)

CLOSE_SECONDS = 20.0
FORCED_EXIT_CODE = 1
ANEW_SECONDS = 1.0  # before a gateway starts again after a setback
MOST_TRIES = 60
GOODBYE = "the gateway is shutting down"


async def run_gateway(config: Config) -> int:
    """Runs until SIGTERM or SIGINT, then drains."""
    keep_large_blocks_apart()
    descriptors = Descriptors(allow_many_files())
    running = asyncio.create_task(_run_anew(config, descriptors), name="gateway")
    _stop_on_signals(running)
    try:
        await running
    except asyncio.CancelledError:
        logger.info("stopped")
    return 0


async def _run_anew(config: Config, descriptors: Descriptors) -> None:
    """Runs the gateway until it is told to stop. Where the database went back in time, or another
    node of the cluster took over, nothing in memory is true any more: everything ends, as at a
    stop, and starts again from what the tables say."""
    failures = 0
    cause = OwnershipLost if config.cluster.enabled else Setback
    while True:
        try:
            await _run(config, descriptors)
            return
        except (StoreUnavailable, DatabaseError) as error:
            if _follows(error, cause):
                failures = 1
                logger.warning("%s", error)
            elif failures and isinstance(error, DatabaseError):
                failures += 1
                logger.error("%s; it is tried again", error)
            else:
                raise
            if failures > MOST_TRIES and not config.cluster.enabled:
                raise
        logger.warning("starting anew")
        await asyncio.sleep(ANEW_SECONDS)


def _follows(error: BaseException | None, cause: type[OwnershipLost]) -> bool:
    """Tells if such a loss ended the gateway, also where the way down failed in its turn: a
    database that does not answer keeps nobody from starting anew."""
    while error is not None:
        if isinstance(error, cause):
            return True
        error = error.__context__
    return False


async def _run(config: Config, descriptors: Descriptors) -> None:
    lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    require_certificates(config.listeners)
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(open_database(config))
        node = await serve_in_turn(config, url, stack)
        manager = await _open_manager(config, url, node)
        stack.push_async_callback(_close, manager)

        def stop(error: Exception) -> None:
            if not lost.done():
                lost.set_exception(error)

        manager.on_lost(stop)
        await import_at_start(config, manager)
        require_safe_listeners(config, has_users=manager.auth.accounts.has_users)
        await _listen(config, manager, descriptors, stack)
        tune_collector()
        print("ready", flush=True)
        await lost


async def _open_manager(config: Config, url: str, node: ClusterNode | None) -> Manager:
    """Takes the database and everything in it. A node of a cluster that cannot gives up its turn:
    another one may."""
    try:
        async with reaching(url):
            return await Manager.open(
                url,
                forms=FORMS,
                settings=manager_settings(config),
                policy=config.auth,
                give_back=give_back,
                node=node,
            )
    except DatabaseError as error:
        if node is None:
            raise
        raise OwnershipLost(f"this node cannot take over: {error}") from error


async def _listen(
    config: Config, manager: Manager, descriptors: Descriptors, stack: AsyncExitStack
) -> None:
    """Opens all listeners, or none: those that are open close again when one cannot be opened."""
    connections = Connections()
    adapters = Adapters(config, manager, connections)
    tls_counters, listener_counters = TlsCounters(), ListenerCounters()
    collector_counters = CollectorCounters()
    counters = {
        "": manager.counters,
        "memory": manager.memory.counters,
        "tls": tls_counters,
        "listener": listener_counters,
        "collector": collector_counters,
        **adapters.counters,
    }
    acceptors: dict[str, Acceptor] = {}
    statistics = Statistics(manager, connections, counters)
    services = Services(config, manager, connections, counters, acceptors, statistics)
    management = Management(services, listener_counters)
    factories = {**adapters.factories, "management": await management.open(stack)}
    adapters.start()
    collector = PlannedCollector(lambda: connections.ended, collector_counters)
    stack.callback(asyncio.create_task(collector.run(), name="collector").cancel)
    stack.callback(asyncio.create_task(statistics.run(), name="statistics").cancel)
    # The way down: listeners close, connections end, what they leave behind is written.
    stack.push_async_callback(adapters.stop, GOODBYE)
    stack.push_async_callback(connections.drain, GOODBYE)
    shares = _shares(descriptors, manager, connections, management, acceptors)
    lines = []
    for name, listener in config.listeners.enabled().items():
        share = shares["management" if name == "management" else "messaging"]
        acceptors[name] = await open_listener(
            name, listener, factories[name], tls_counters, listener_counters, share
        )
        stack.callback(acceptors[name].close)
        lines.append(announcement(name, listener, acceptors[name]))
    reload = Reloading(config.listeners, acceptors, manager.refresh_rights)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)
    for line in lines:
        print(line, flush=True)
    if not adapters.factories.keys() & config.listeners.enabled().keys():
        logger.warning("no client can connect: listeners has neither mqtt, nor mqtt_ws, nor amqp")


def _shares(
    descriptors: Descriptors,
    manager: Manager,
    connections: Connections,
    management: Management,
    acceptors: Mapping[str, Acceptor],
) -> dict[str, Share]:
    """Divides the file descriptors: a share for HTTP, and one for clients that have not logged in
    yet. Handshakes count with those that they may lead to."""

    def acceptors_of(*, is_http: bool) -> list[Acceptor]:
        return [each for name, each in acceptors.items() if (name == "management") is is_http]

    def beginning(*, is_http: bool) -> int:
        return sum(each.beginning for each in acceptors_of(is_http=is_http))

    def strangers() -> int:
        unnamed = len(connections) + len(connections.undecided) - manager.auth.present
        return unnamed + beginning(is_http=False)

    def http() -> int:
        return management.present + beginning(is_http=True)

    newcomers = connections.strangers(manager.auth.is_present)
    return {
        "messaging": Share(
            descriptors,
            descriptors.for_strangers,
            strangers,
            "clients have yet to log in",
            lambda: end_oldest([newcomers, *acceptors_of(is_http=False)]),
        ),
        "management": Share(
            descriptors,
            descriptors.for_http,
            http,
            "HTTP connections are open",
            lambda: end_oldest([management, *acceptors_of(is_http=True)]),
        ),
    }


async def _close(manager: Manager) -> None:
    try:
        await asyncio.wait_for(manager.close(), CLOSE_SECONDS)
    except TimeoutError:
        raise StoreUnavailable(
            f"the database did not answer for {CLOSE_SECONDS:.0f} s: what was not committed is "
            "given up; no client was told that it was stored, and each will send it again"
        ) from None


def _stop_on_signals(running: asyncio.Task[None]) -> None:
    """Stops the gateway at the first signal, also during the start; the second does not wait."""
    asked = False

    def ask(number: signal.Signals) -> None:
        nonlocal asked
        if asked:
            logger.warning("%s again: ending at once", number.name)
            os._exit(FORCED_EXIT_CODE)
        asked = True
        logger.info("%s: stopping", number.name)
        running.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ask, number)
    # A terminal that goes, or a log rotation's habit, is no reason to end.
    loop.add_signal_handler(signal.SIGHUP, logger.info, "SIGHUP: still starting, nothing to reload")
