"""Definitions of a running gateway: exported as a file, and imported from one.

Answers for the order of an import: plan, refuse where strict, write the rights in one transaction,
then make exchanges, queues and bindings, in this order. HTTP, the start, and the command line
where no gateway runs come through here.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from gateway.config.keys import Config, ConfigError
from queue_core.definitions.document import MOST_BYTES, read_document
from queue_core.definitions.document_export import export_all, export_vhost
from queue_core.definitions.items import TOPOLOGY
from queue_core.definitions.plan import Action, Plan
from queue_core.definitions.planning import make_plan
from queue_core.definitions.present import Present, present_in
from queue_core.definitions.topology_import import Failure, TopologyImport
from queue_core.errors import InvalidArgument, StoreUnavailable, VhostNotFound
from queue_core.manager import Manager
from queue_core.store.tables.definitions_import import ImportRecord

logger = logging.getLogger(__name__)

START: Final = "start"
RABBITMQ_VERSION: Final = "4.1.0"  # whose form our files have


@dataclass(frozen=True, slots=True)
class Report:
    """What an import has done, and what it has not."""

    plan: Plan
    failures: tuple[Failure, ...] = ()

    @property
    def complaints(self) -> list[str]:
        """Tells what was not taken, and what was planned and failed."""
        failed = [f"{each.step.label}: failed: {each.reason}" for each in self.failures]
        return [*self.plan.complaints, *failed]

    def record(self, source: str, imported_by: str | None, data: bytes) -> ImportRecord:
        counts = self.plan.counts()
        return ImportRecord(
            source=source,
            imported_by=imported_by,
            sha256=digest(data),
            made=counts[Action.CREATE] - len(self.failures),
            changed=counts[Action.CHANGE],
            left_out=self.complaints,
        )


def digest(data: bytes) -> str:
    """Returns the digest by which a file is known again."""
    return hashlib.sha256(data).hexdigest()


async def present_of(manager: Manager) -> Present:
    settings = await manager.imports.settings()
    return await present_in(manager.auth.accounts.roll, manager.vhosts.values(), settings)


async def plan_import(
    manager: Manager, data: bytes, vhost: str | None, *, shortest_password: int
) -> Plan:
    """Reads a file and plans its import; changes nothing. Raises InvalidArgument, and
    VhostNotFound."""
    if vhost is not None and vhost not in manager.vhosts:
        raise VhostNotFound(f"there is no virtual host '{vhost}'")
    document = await asyncio.to_thread(read_document, data, vhost)
    present = await present_of(manager)
    return await asyncio.to_thread(
        make_plan, document, present, shortest_password=shortest_password
    )


async def import_file(
    manager: Manager,
    data: bytes,
    vhost: str | None = None,
    *,
    source: str,
    shortest_password: int,
    imported_by: str | None = None,
    strict: bool = False,
) -> Report:
    """Imports a file. Raises InvalidArgument for one that cannot be read, or where strict would
    leave something out: nothing is changed then."""
    plan = await plan_import(manager, data, vhost, shortest_password=shortest_password)
    if strict:
        plan.require_complete()
    report = await carry_out(manager, plan, imported_by)
    await manager.imports.note(report.record(source, imported_by, data))
    return report


async def carry_out(manager: Manager, plan: Plan, imported_by: str | None) -> Report:
    """Does what a plan says. Rights are in force before the first queue is made."""
    if any(step.section not in TOPOLOGY for step in plan.changes):
        await manager.imports.write_rights(plan.steps)
        if not await manager.refresh_rights():
            raise StoreUnavailable(
                "users and virtual hosts are imported, and the database is out of reach now; "
                "import the file again"
            )
    failures = await TopologyImport(manager.vhosts, imported_by).make(plan.steps)
    return Report(plan, tuple(failures))


async def import_at_start(config: Config, manager: Manager) -> None:
    """Imports the file that the configuration names, unless it is the one of the last start. Raises
    ConfigError for a file that cannot be read or taken."""
    path = config.definitions.import_
    if path is None:
        return
    try:
        data = await asyncio.to_thread(_read, path)
        if await manager.imports.last_digest(START) == digest(data):
            logger.info("definitions.import: %s is unchanged, and not imported again", path)
            return
        strict = config.definitions.strict
        shortest = config.auth.min_password_length
        report = await import_file(
            manager, data, source=START, shortest_password=shortest, strict=strict
        )
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError([f"definitions.import: {path} cannot be read: {reason}"]) from error
    except InvalidArgument as error:
        raise ConfigError([f"definitions.import: {path}: {error}"]) from error
    for line in report.complaints:
        logger.warning("definitions.import: not taken: %s", line)
    logger.info("definitions.import: %s: %s", path, report.plan.counts())


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MOST_BYTES + 1)


async def export_file(manager: Manager, vhost: str | None) -> dict[str, Any]:
    """Writes everything, or what is in one virtual host. Raises VhostNotFound."""
    if vhost is not None and vhost not in manager.vhosts:
        raise VhostNotFound(f"there is no virtual host '{vhost}'")
    return await asyncio.to_thread(exported, await present_of(manager), vhost)


def exported(present: Present, vhost: str | None) -> dict[str, Any]:
    if vhost is None:
        return export_all(present, RABBITMQ_VERSION, version("howdah"))
    return export_vhost(present, vhost, RABBITMQ_VERSION, version("howdah"))
