"""AMQP 0.9.1 with kombu, and Celery as a real application on top."""

from __future__ import annotations

import importlib
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery
from celery.contrib.testing.worker import start_worker
from celery.signals import setup_logging

from tests.support.gateway_process import GatewayProcess
from tests.support.names import fresh
from tests.support.until import PATIENCE_SECONDS

kombu: Any = importlib.import_module("kombu")  # as good as untyped

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def connection(shared_gateway: GatewayProcess) -> Iterator[Any]:
    with kombu.Connection(
        shared_gateway.amqp_url(), transport_options={"confirm_publish": True}
    ) as made:
        yield made


def test_a_producer_and_a_consumer_of_kombu_understand_each_other(
    connection: Any,
) -> None:
    exchange = kombu.Exchange(fresh("media"), "direct", durable=True)
    queue = kombu.Queue(fresh("video"), exchange=exchange, routing_key="video")
    found: list[Any] = []

    def process(body: Any, message: Any) -> None:
        found.append(body)
        message.ack()

    connection.Producer(serializer="json").publish(
        {"name": "/tmp/lolcat1.avi", "size": 1301013},
        exchange=exchange,
        routing_key="video",
        declare=[queue],
    )
    with connection.Consumer(queue, callbacks=[process]):
        connection.drain_events(timeout=PATIENCE_SECONDS)
    assert found == [{"name": "/tmp/lolcat1.avi", "size": 1301013}]


def test_a_simple_queue_of_kombu_is_first_in_first_out(connection: Any) -> None:
    queue = connection.SimpleQueue(fresh("simple"))
    for number in range(3):
        queue.put({"number": number})
    assert queue.qsize() == 3
    for number in range(3):
        message = queue.get(block=True, timeout=PATIENCE_SECONDS)
        assert message.payload == {"number": number}
        message.ack()
    queue.close()


def test_heartbeats_of_kombu_are_answered(shared_gateway: GatewayProcess) -> None:
    with kombu.Connection(shared_gateway.amqp_url(), heartbeat=1) as connection:
        connection.connect()
        for _ in range(5):
            connection.heartbeat_check(rate=2)
            with pytest.raises(socket.timeout):
                connection.drain_events(timeout=0.6)
        assert connection.connected


def _leave_logging_alone(**_: object) -> None:
    """Celery would take over the logging of this whole process, and of the tests behind this."""


setup_logging.connect(_leave_logging_alone, weak=False)


def test_celery_runs_tasks_and_brings_back_results(shared_gateway: GatewayProcess) -> None:
    app: Any = Celery(
        fresh("app"),
        broker=shared_gateway.amqp_url(),
        backend="rpc://",
        set_as_current=False,
    )
    app.conf.update(
        task_default_queue=fresh("celery"),
        task_acks_late=True,
        broker_connection_retry_on_startup=False,
        worker_enable_remote_control=False,
    )

    def product(left: int, right: int) -> int:
        return left * right

    def failure() -> None:
        raise ValueError("on purpose")

    multiply, fail = app.task(name="multiply")(product), app.task(name="fail")(failure)

    with start_worker(
        app, pool="solo", perform_ping_check=False, shutdown_timeout=PATIENCE_SECONDS
    ):
        results = [multiply.delay(number, 2) for number in range(20)]
        assert [result.get(timeout=PATIENCE_SECONDS) for result in results] == list(range(0, 40, 2))
        with pytest.raises(ValueError, match="on purpose"):
            fail.delay().get(timeout=PATIENCE_SECONDS)
