"""The removal of a virtual host with everything in it, as RabbitMQ removes one.

The commands refuse a virtual host with durable queues, because a person may have forgotten them;
programs that speak RabbitMQ's API count on it that they go.
"""

from __future__ import annotations

from contextlib import suppress

from queue_core.access.accounts import DEFAULT_VHOST
from queue_core.errors import NameReserved, QueueNotFound, SessionNotFound
from queue_core.manager import Manager
from queue_core.vhost import Vhost


async def remove_with_contents(manager: Manager, vhost: Vhost) -> None:
    """Ends the sessions, deletes the queues and removes the virtual host. A queue that somebody
    declares meanwhile keeps it: then QueueNotEmpty is raised, and the next try removes it."""
    if vhost.name == DEFAULT_VHOST:
        raise NameReserved("virtual host '/' is where everybody starts, and stays")
    for session in list(manager.sessions.all(vhost.name)):
        with suppress(SessionNotFound):  # it has ended by itself
            await manager.sessions.end(vhost, session.client_id)
    for queue in list(vhost.queues.values()):
        with suppress(QueueNotFound):
            await vhost.delete_queue(queue.name, owner=queue.owner, inside=True)
    await manager.stored_vhosts.remove(vhost.name)
