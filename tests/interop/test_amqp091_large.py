"""Large messages over AMQP 0.9.1, as large as one key of the configuration allows."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pika
import pytest

from tests.support.gateway_process import running

MIB = 2**20
LARGE = bytes(range(256)) * (128 * MIB // 256)


@pytest.mark.slow
def test_a_message_of_128_mib_is_stored_and_read_by_raising_one_key(tmp_path: Path) -> None:
    settings = {"broker": {"max_message_size": "200MiB"}}
    with running(tmp_path / "gateway", settings) as process:
        connection = pika.BlockingConnection(pika.URLParameters(process.amqp_url()))
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("large", durable=True)
        channel.basic_publish("", "large", LARGE, pika.BasicProperties(delivery_mode=2))
        _, _, body = channel.basic_get("large", auto_ack=True)
        assert hashlib.sha256(body).digest() == hashlib.sha256(LARGE).digest()
        connection.close()
