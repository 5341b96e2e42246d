"""Dead letters over our own API: causes, dry runs and redrives, on a running gateway."""

from __future__ import annotations

from urllib.parse import quote

import pika
import pytest

from tests.support.gateway_process import GatewayProcess
from tests.support.own_api import (
    amqp_channel,
    get,
    messages,
    post,
    run_shown,
)
from tests.support.until import until


@pytest.fixture
def dead(own_gateway: GatewayProcess, request: pytest.FixtureRequest) -> str:
    """A queue with three dead letters, two of them with what an exception said."""
    name = f"own.dead.{request.node.name[:20]}"
    with amqp_channel(own_gateway) as channel:
        channel.queue_declare(name, durable=True)
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": name}
        channel.queue_declare(f"{name}.work", durable=True, arguments=arguments)
        for number in range(3):
            headers = {"x-exception-message": "it's a time-out\nat line 7"} if number else {}
            properties = pika.BasicProperties(delivery_mode=2, headers=headers)
            channel.basic_publish("", f"{name}.work", b"%d" % number, properties)
            method, _, _ = channel.basic_get(f"{name}.work")
            assert method is not None
            channel.basic_reject(method.delivery_tag, requeue=False)
        channel.queue_declare(name, passive=True)
    return name


async def test_dead_letters_are_grouped_and_redriven_by_what_the_group_says(
    own_gateway: GatewayProcess, dead: str
) -> None:
    listed = {each["queue"]: each for each in get(own_gateway, "/dead-letters?name=own.dead").value}
    assert listed[dead]["dead_letters_of"] == [f"{dead}.work"]

    async def are_there() -> bool:
        path = f"/dead-letters/%2F/{quote(dead, safe='')}"
        causes = get(own_gateway, path).value["causes"]
        return bool(sum(each["messages"] for each in causes) == 3)

    await until(are_there)
    found = get(own_gateway, f"/dead-letters/%2F/{quote(dead, safe='')}").value
    causes = {each["failure"]: each for each in found["causes"]}
    assert causes["it's a time-out"]["messages"] == 2
    assert causes[None]["messages"] == 1
    shown = await run_shown(own_gateway, found["sql"])
    assert {row["failure"]: row["messages"] for row in shown} == {
        failure: each["messages"] for failure, each in causes.items()
    }
    body = {"condition": causes["it's a time-out"]["condition"]}
    path = f"/dead-letters/%2F/{quote(dead, safe='')}/redrive"
    dry = post(own_gateway, path, body).value
    assert (dry["dry_run"], dry["matched"], dry["moved"]) == (True, 2, 0)
    assert dry["targets"] == [{"queue": f"{dead}.work", "messages": 2, "why_not": None}]
    assert (await run_shown(own_gateway, dry["count_sql"]))[0]["messages"] == 2
    before = dry["before_offset"]
    done = post(own_gateway, path, {**body, "dry_run": False, "before_offset": before}).value
    assert (done["matched"], done["moved"], done["left"]) == (2, 2, 0)
    assert len(messages(own_gateway, f"{dead}.work")["items"]) == 2
    assert len(messages(own_gateway, dead)["items"]) == 1


async def test_the_sql_of_a_redrive_does_it(own_gateway: GatewayProcess, dead: str) -> None:
    path = f"/dead-letters/%2F/{quote(dead, safe='')}/redrive"

    async def are_there() -> bool:
        return bool(post(own_gateway, path, {}).value["matched"] == 3)

    await until(are_there)
    dry = post(own_gateway, path, {"condition": "body <> '1'"}).value
    await run_shown(own_gateway, dry["sql"])

    async def moved() -> bool:
        return len(messages(own_gateway, f"{dead}.work")["items"]) == 2

    await until(moved)


def test_a_redrive_to_a_queue_that_is_gone_says_so_before(
    own_gateway: GatewayProcess, dead: str
) -> None:
    with amqp_channel(own_gateway) as channel:
        channel.queue_delete(f"{dead}.work")
    path = f"/dead-letters/%2F/{quote(dead, safe='')}/redrive"
    dry = post(own_gateway, path, {}).value
    assert "no queue" in dry["targets"][0]["why_not"]
    done = post(own_gateway, path, {"dry_run": False}).value
    assert (done["moved"], done["left"]) == (0, 3)


@pytest.mark.parametrize(
    "body", [b"{", b'{"condition": 3}', b'{"dry": true}', b'{"condition": "x"}', b"[]"]
)
def test_a_wrong_redrive_moves_nothing(own_gateway: GatewayProcess, dead: str, body: bytes) -> None:
    path = f"/dead-letters/%2F/{quote(dead, safe='')}"
    assert post(own_gateway, f"{path}/redrive", body).error[0] == 400
    assert len(messages(own_gateway, f"{dead}.work")["items"]) == 0
