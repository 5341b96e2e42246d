"""`howdah doctor`: finds what is wrong with this configuration, database, disk and clock.

Gathers findings and prints them; the questions to the database are in
queue_core.store.operator.doctor_checks.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import json
import os
import resource
import shutil
import socket
import ssl
import time
from http.client import HTTPException
from pathlib import Path
from urllib.request import HTTPSHandler, ProxyHandler, build_opener

from gateway.commands.access_checks import openness
from gateway.commands.certificate_checks import lifetimes
from gateway.commands.command import CommandError, Commands, add_command, add_json
from gateway.commands.database import connected
from gateway.commands.output import print_json
from gateway.config.file_and_environment import ConfigError
from gateway.config.keys import Config, Listener, Listeners
from gateway.database import DatabaseError
from gateway.listeners import PRODUCT, cannot_listen
from gateway.postgres.data_dir import is_held
from gateway.postgres.errors import EmbeddedPostgresError
from gateway.tls import server_context
from queue_core.store.operator.finding import Finding, Level, fail, ok, warn
from queue_core.store.operator.queue_operations import Operations

MIB = 1024 * 1024
LEAST_FREE_BYTES = 256 * MIB
LITTLE_FREE_BYTES = 2048 * MIB
LEAST_FILES = 4096
ANSWER_SECONDS = 3.0
NEAREST = {
    "0.0.0.0": "127.0.0.1",
    "::": "::1",
    "": "127.0.0.1",
}  # where one that listens everywhere is
CHANGE = "change it in the configuration"
AMQP_HEADER = b"AMQP\x00\x00\x09\x01"
UNSURE = (
    "`ss -ltnp` names the program: it may be the gateway of this configuration, which neither the "
    "database nor its management and AMQP listeners could tell; otherwise change it in the "
    "configuration"
)


def register(commands: Commands) -> None:
    parser = add_command(
        commands,
        "doctor",
        doctor,
        "say what is wrong with the configuration, the database, the disk and the clock",
        "Changes nothing, and may be run beside a running gateway. Ends with 1 if something FAILs.",
    )
    add_json(parser)


async def doctor(options: argparse.Namespace, config: Config) -> int:
    from queue_core.store.operator.doctor_checks import examine

    findings = ok(f"configuration: {options.config or 'defaults and environment'}")
    findings += disk(Path(config.data_dir)) + open_files()
    is_served, is_known = False, True
    try:
        async with connected(config) as connection:
            findings += await examine(connection)
            findings += await openness(connection, config)
            is_served = await Operations(connection).is_served()
    except (CommandError, DatabaseError, EmbeddedPostgresError) as error:
        findings.append(fail("the database cannot be examined", str(error)))
        # The database cannot tell who runs; of a private one, the folder can.
        is_private = config.database.url is None
        is_held_here = is_private and is_held(Path(config.data_dir))
        is_served = is_held_here or await asyncio.to_thread(is_running, config.listeners)
        is_known = False
    findings += listeners(config, is_served=is_served, is_known=is_known)
    if options.json:
        print_json(findings)
    else:
        for finding in findings:
            print(f"{finding.level:<5}{finding.what}")
            if finding.way_out:
                print(f"     -> {finding.way_out}")
    return int(any(finding.level is Level.FAIL for finding in findings))


def disk(data_dir: Path) -> list[Finding]:
    """Checks the free space on the file system of data_dir, which may not exist yet."""
    place = data_dir.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    what = f"{free // MIB} MiB free on the file system of data_dir {data_dir}"
    if free < LEAST_FREE_BYTES:
        return [fail(what, "make room: PostgreSQL stops when the disk is full")]
    if free < LITTLE_FREE_BYTES:
        return [warn(what, "make room, or move data_dir to a larger disk")]
    if not os.access(place, os.W_OK):
        return [fail(f"data_dir {data_dir} is not writable", "chown it, or choose another")]
    return ok(what)


def open_files() -> list[Finding]:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < LEAST_FILES:
        return [
            warn(
                f"at most {hard} files may be open, and each connection is one",
                "ulimit -Hn 65536, or LimitNOFILE=65536 in the systemd unit",
            )
        ]
    return ok("enough files may be open")


def is_running(listeners: Listeners) -> bool:
    """Tells if a gateway answers on the management or the AMQP listener's address."""
    return _answers(listeners.management) or _greets(listeners.amqp)


def _answers(listener: Listener | None) -> bool:
    """Tells if a gateway of ours answers at the management listener's address."""
    if listener is None:
        return False
    context = _unverified(listener)
    host = NEAREST.get(listener.host, listener.host)
    place = f"[{host}]" if ":" in host else host
    url = f"{'http' if context is None else 'https'}://{place}:{listener.port}/health/live"
    # No proxy, whatever the environment says: it would answer for itself.
    opener = build_opener(ProxyHandler({}), HTTPSHandler(context=context))
    try:
        with opener.open(url, timeout=ANSWER_SECONDS) as answer:
            said = json.loads(answer.read(1024))
    except (OSError, ValueError, HTTPException):
        return False
    return isinstance(said, dict) and said.get("gateway") == PRODUCT


def _greets(listener: Listener | None) -> bool:
    """Tells if a gateway of ours answers at the AMQP listener's address: a server of 0.9.1 first
    says what product it is."""
    if listener is None:
        return False
    context = _unverified(listener)
    try:
        address = (NEAREST.get(listener.host, listener.host), listener.port)
        with (
            socket.create_connection(address, ANSWER_SECONDS) as plain,
            plain if context is None else context.wrap_socket(plain) as peer,
        ):
            peer.sendall(AMQP_HEADER)
            return PRODUCT.encode() in peer.recv(4096)
    except (OSError, ValueError):
        return False


def _unverified(listener: Listener) -> ssl.SSLContext | None:
    """Makes a TLS context that checks no certificate: nothing secret is said, and the answer opens
    no door."""
    if listener.tls is None:
        return None
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def listeners(config: Config, *, is_served: bool, is_known: bool) -> list[Finding]:
    """Checks that each listener can be opened. `is_known` says that the database has told if a
    gateway runs."""
    findings = []
    for name, listener in config.listeners.enabled().items():
        try:
            if listener.tls is not None:
                server_context(name, listener.tls)
            if not is_served:
                _try_to_bind(listener)
        except ConfigError as error:
            findings.append(fail(str(error), CHANGE))
        except OSError as error:
            findings.append(_cannot_bind(name, listener, error, is_known=is_known))
    if findings:
        return findings
    findings = ok("listeners: " + ("the gateway is running" if is_served else "every port is free"))
    return findings + lifetimes(config.listeners, time.time())


def _try_to_bind(listener: Listener) -> None:
    family, kind, _, _, address = socket.getaddrinfo(
        listener.host, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with socket.socket(family, kind) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)


def _cannot_bind(name: str, listener: Listener, error: OSError, *, is_known: bool) -> Finding:
    if error.errno == errno.EADDRINUSE and not is_known:
        place = f"{listener.host}:{listener.port}"
        return fail(f"listeners.{name}.port: {place} is in use, and nobody tells by whom", UNSURE)
    return fail(str(cannot_listen(name, listener, error)), CHANGE)
