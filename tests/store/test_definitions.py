"""Definitions that many change at once: each as it was asked for, and there after a restart."""

from __future__ import annotations

import asyncio

import pytest

from queue_core.errors import CoreError, NameReserved, QueueNotFound, StoreUnavailable
from queue_core.queues.spec import QueueSpec
from tests.store.sessions import World, world


async def test_queues_declared_at_once_each_have_their_own_arguments_and_messages(
    migrated_url: str,
) -> None:
    names = [f"q{number}" for number in range(300)]
    async with world(migrated_url) as here:
        await asyncio.gather(
            *(
                here.vhost.declare_queue(QueueSpec.parse(name, {"x-max-length": number + 1}))
                for number, name in enumerate(names)
            ),
            # the same name from several connections is one queue
            *(here.vhost.declare_queue(QueueSpec.parse("one")) for _ in range(20)),
        )
        for name in ("q7", "q299"):
            await here.vhost.bind("amq.topic", here.vhost.queue(name), name)
            await here.publish(name, name.encode())
        await asyncio.gather(*(here.vhost.delete_queue(name) for name in names[10:200]))
    async with world(migrated_url) as here:
        assert set(here.vhost.queues) == {"one", *names[:10], *names[200:]}
        for number in (0, 9, 200, 299):
            assert here.vhost.queue(names[number]).spec.max_length == number + 1
        assert await (await here.listen("q7")).has_bodies(1) == [b"q7"]
        assert await (await here.listen("q299")).has_bodies(1) == [b"q299"]


async def test_a_queue_that_is_deleted_while_it_is_bound_leaves_no_binding_behind(
    migrated_url: str,
) -> None:
    async with world(migrated_url) as here:
        for number in range(20):
            queue = await here.vhost.declare_queue(QueueSpec.parse("q"))
            outcomes = await asyncio.gather(
                here.vhost.bind("amq.topic", queue, f"key.{number}"),
                here.vhost.delete_queue("q"),
                here.vhost.bind("amq.topic", queue, f"other.{number}"),
                return_exceptions=True,
            )
            assert outcomes[0] is None
            assert isinstance(outcomes[2], QueueNotFound)
    async with world(migrated_url) as here:  # a binding to nowhere would stop the start
        assert not here.vhost.queues
        assert not here.vhost.router.route_topic("key/1")


async def test_a_binding_that_could_not_be_written_is_not_there(
    migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise StoreUnavailable("the database cannot be reached")

    async with world(migrated_url) as here:
        queue = await here.vhost.declare_queue(QueueSpec.parse("q"))
        monkeypatch.setattr(here.vhost._keeper, "add_binding", fail)
        with pytest.raises(CoreError):
            await here.vhost.bind("amq.topic", queue, "key")
        assert not here.vhost.router.route_topic("key")


def routed(here: World, key: str) -> list[str]:
    return sorted(match.queue.name for match in here.vhost.router.route_topic(key))


async def test_bindings_that_are_made_together_share_their_commits(
    migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(migrated_url) as here:
        queues = [await here.vhost.declare_queue(QueueSpec.parse(f"q{n}")) for n in range(50)]
        binding, sizes = here.vhost._keeper._binding, []  # type: ignore[attr-defined]  # the store
        write = binding._write

        async def noted(rows: list[dict[str, object]]) -> object:
            sizes.append(len(rows))
            return await write(rows)

        monkeypatch.setattr(binding, "_write", noted)
        await asyncio.gather(
            *(here.vhost.bind("amq.topic", queue, queue.name) for queue in queues),
            *(here.vhost.bind("amq.topic", queue, queue.name) for queue in queues),  # there already
        )
        assert sum(sizes) == 50
        assert len(sizes) < 10
    async with world(migrated_url) as here:
        for n in range(50):
            assert routed(here, f"q{n}") == [f"q{n}"]


async def test_a_binding_whose_client_leaves_is_not_there_after_a_restart_either(
    migrated_url: str,
) -> None:
    async with world(migrated_url) as here:
        queue = await here.vhost.declare_queue(QueueSpec.parse("q"))
        other = await here.vhost.declare_queue(QueueSpec.parse("other"))
        leaving = asyncio.create_task(here.vhost.bind("amq.topic", queue, "key"))
        staying = asyncio.create_task(here.vhost.bind("amq.topic", other, "key"))
        for _ in range(10):
            await asyncio.sleep(0)
        assert routed(here, "key") == ["other", "q"]  # and not committed yet
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        await staying
        assert routed(here, "key") == ["other"]
    async with world(migrated_url) as here:
        assert routed(here, "key") == ["other"]


async def test_who_made_a_queue_is_known_after_a_restart(migrated_url: str) -> None:
    async with world(migrated_url) as here:
        queue = await here.vhost.declare_queue(QueueSpec.parse("q"), created_by="ann")
        assert queue.created_by == "ann"
        stream = QueueSpec.parse("s", {"x-queue-type": "stream"})
        await here.vhost.declare_queue(stream, created_by="bob")
    async with world(migrated_url) as here:
        assert [here.vhost.queue(name).created_by for name in ("q", "s")] == ["ann", "bob"]


async def test_an_operator_deletes_a_subscription_and_no_client_uses_it_by_name(
    migrated_url: str,
) -> None:
    name = "$subscription/ann/client/news"
    async with world(migrated_url) as here:
        await here.vhost.declare_queue(QueueSpec.parse(name), created_by="ann", inside=True)
        with pytest.raises(NameReserved, match="gateway's own"):
            await here.vhost.declare_queue(QueueSpec.parse(name))
        with pytest.raises(NameReserved, match="gateway's own"):
            here.vhost.check_usable(name)
        assert await here.vhost.delete_queue(name) == 0


@pytest.mark.parametrize("name", ["$session/sensor", "$share/group/a/b", "$live/session/sensor"])
async def test_names_of_the_gateways_own_queues_are_refused_to_clients(
    migrated_url: str, name: str
) -> None:
    async with world(migrated_url) as here:
        with pytest.raises(NameReserved, match="gateway's own"):
            await here.vhost.declare_queue(QueueSpec.parse(name))
        with pytest.raises(NameReserved, match="gateway's own"):
            await here.vhost.delete_queue(name)


async def test_names_that_the_gateway_hands_out_are_not_for_clients_to_choose(
    migrated_url: str,
) -> None:
    async with world(migrated_url) as here:
        with pytest.raises(NameReserved, match=r"queue name 'amq\.mine' contains reserved prefix"):
            await here.vhost.declare_queue(QueueSpec.parse("amq.mine"))
        spec = QueueSpec.parse(here.vhost.new_name())
        queue = await here.vhost.declare_queue(spec, inside=True)
        assert await here.vhost.declare_queue(spec) is queue  # by the name that it was told
        assert await here.vhost.delete_queue(spec.name) == 0
