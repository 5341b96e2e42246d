"""The end of a link, and of the queue that was only for it.

A queue behind a subscription goes with its link, its session or its connection, or later, as the
expiry-policy of its source says. Until then a receiver that attaches by the same name finds it.
"""

from __future__ import annotations

import logging

from protocols.amqp10.addressing.nodes import End, Supply
from protocols.amqp10.engine.proton import Attach, Handle
from protocols.amqp10.links.browsing import BrowsingLink
from protocols.amqp10.links.dynamic_nodes import Lifetime, nodes_of
from protocols.amqp10.links.from_client import IncomingLink
from protocols.amqp10.links.to_client import OutgoingLink
from protocols.amqp10.links.transactions import CoordinatorLink
from protocols.amqp10.negotiated_terms import Terms
from queue_core.errors import CoreError

log = logging.getLogger(__name__)

Link = IncomingLink | OutgoingLink | BrowsingLink | CoordinatorLink


class Releasing:
    """The ends of one connection's links, and of the queues that are only for them."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        # Queues whose links are detached: by the link's name, and the session that they go with.
        self._waiting: dict[tuple[str, Handle | None], Supply] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    async def recall(self, asked: Attach) -> Supply | None:
        """Finds the queue that a receiver of that name left behind, if it asks for the same, and
        may still read it. Raises AccessRefused."""
        for session in (asked.session, None):
            supply = self._waiting.pop((asked.name, session), None)
            if supply is None:
                continue
            terms, right = self._terms, supply.right
            loss = None if right is None else terms.auth.loss(terms.identity, right)
            is_same = asked.source.address in (None, supply.address)
            if is_same and not asked.source.is_dynamic and loss is None:
                return supply
            await self._delete(supply.queue)
            if loss is not None:
                raise loss
        return None

    async def release(self, link: Link, *, is_closed: bool, is_lost: bool) -> None:
        link.close(is_lost=is_lost, is_closed=is_closed)
        if isinstance(link, CoordinatorLink):
            return
        if isinstance(link, IncomingLink):
            await self._release_target(link)
            return
        supply = link.supply
        if supply.lifetime is not None and supply.lifetime is not Lifetime.ON_CLOSE:
            await self._lose_maker(supply.queue)
        elif supply.ends_with is End.NOTHING:
            await nodes_of(self._terms.vhost).end(supply.queue)
        elif is_closed or supply.ends_with is End.LINK:
            await self._delete(supply.queue)
        elif supply.ends_with is End.SESSION and not is_lost:
            self._waiting[link.name, link.session] = supply
        elif supply.ends_with is End.CONNECTION and not is_lost:
            self._waiting[link.name, None] = supply

    async def end_session(self, session: Handle) -> None:
        for key in [key for key in self._waiting if key[1] == session]:
            await self._delete(self._waiting.pop(key).queue)

    async def _release_target(self, link: IncomingLink) -> None:
        if link.made is not None:
            name, lifetime = link.made
            if lifetime is Lifetime.ON_CLOSE:
                await self._delete(name)
            else:
                await self._lose_maker(name)
        elif link.place is not None and not link.place.exchange:
            nodes = nodes_of(self._terms.vhost)
            nodes.leave(link.place.key)
            await nodes.end(link.place.key)

    async def _lose_maker(self, name: str) -> None:
        nodes = nodes_of(self._terms.vhost)
        nodes.lose_maker(name)
        await nodes.end(name)

    async def _delete(self, name: str) -> None:
        vhost = self._terms.vhost
        queue = vhost.queues.get(name)
        if queue is None or (queue.counts().consumers and queue.owner is None):
            return  # gone already, or others still use it
        try:
            await vhost.delete_queue(name, owner=self._terms.owner)
        except CoreError as error:
            log.warning("queue '%s' of a link that ended stays: %s", name, error)
