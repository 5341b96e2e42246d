"""AMQP 1.0 with the client inside azure-servicebus: a third implementation, in pure Python."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from tests.gateway_process import GatewayProcess

pyamqp: Any = pytest.importorskip(
    "azure.servicebus._pyamqp", reason="azure-servicebus is not installed"
)


def clients(gateway: GatewayProcess) -> dict[str, Any]:
    from azure.servicebus._pyamqp.authentication import (  # type: ignore[import-not-found]
        SASLPlainAuth,
    )

    return {"auth": SASLPlainAuth("guest", "guest"), "use_tls": False}


def message(body: bytes) -> Any:
    from azure.servicebus._pyamqp.message import (  # type: ignore[import-not-found]
        Message,
        Properties,
    )

    properties = Properties(message_id=body.decode(), subject="s")
    return Message(data=[body], properties=properties, application_properties={"a": 1})


def test_it_sends_receives_and_settles_in_every_way(shared_gateway: GatewayProcess) -> None:
    host = f"127.0.0.1:{shared_gateway.ports['amqp']}"
    queue, options = f"azure-{uuid4().hex[:12]}", clients(shared_gateway)
    with pyamqp.SendClient(host, f"queue://{queue}", **options) as sender:
        for number in range(4):
            sender.send_message(message(str(number).encode()), timeout=10)
    with pyamqp.ReceiveClient(host, f"/queues/{queue}", link_credit=4, **options) as receiver:
        found: list[Any] = []
        while len(found) < 4:
            found += receiver.receive_message_batch(max_batch_size=4, timeout=10)
        assert [b"".join(each.data) for each in found] == [b"0", b"1", b"2", b"3"]
        assert found[0].application_properties == {b"a": 1}
        for number, outcome in enumerate(("accepted", "released", "rejected", "modified")):
            receiver.settle_messages(number, (number + 1).to_bytes(8), outcome)
    with pyamqp.ReceiveClient(host, f"/queues/{queue}", link_credit=4, **options) as receiver:
        again: list[Any] = []
        while len(again) < 2:
            again += receiver.receive_message_batch(max_batch_size=4, timeout=10)
        assert [b"".join(each.data) for each in again] == [b"1", b"3"]
        assert not again[0].header.first_acquirer
