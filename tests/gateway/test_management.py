"""The management listener of a real gateway: health and metrics."""

from __future__ import annotations

import json
from pathlib import Path

import asyncpg
import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.postgres.server import EmbeddedPostgres
from tests.support.gateway_process import GatewayProcess, running
from tests.support.operator import get
from tests.support.until import wait_until


def samples(gateway: GatewayProcess) -> dict[tuple[str, tuple[str, ...]], float]:
    status, text, headers = get(gateway, "/metrics")
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain")
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_gateway_that_runs_is_live_and_ready(shared_gateway: GatewayProcess) -> None:
    assert get(shared_gateway, "/health/live")[:2] == (
        200,
        '{"status":"live","gateway":"Howdah"}\n',
    )
    assert get(shared_gateway, "/health/ready")[:2] == (200, '{"status":"ready"}\n')


@pytest.mark.parametrize("path", ["/health/live", "/metrics", "/nothing"])
def test_no_answer_tells_versions_of_libraries(shared_gateway: GatewayProcess, path: str) -> None:
    headers = get(shared_gateway, path)[2]
    assert not {"Server", "X-Powered-By"} & set(headers)


def test_readiness_falls_while_postgresql_is_gone_and_comes_back(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path / "database", settings={"shared_buffers": "32MB"})
    with server, running(tmp_path / "gateway", {"database": {"url": server.url}}) as gateway:

        def status() -> int:
            return get(gateway, "/health/ready")[0]

        assert status() == 200
        server.stop()
        wait_until(lambda: status() == 503)
        assert get(gateway, "/health/live")[0] == 200
        server.start()
        wait_until(lambda: status() == 200)


def test_metrics_count_messages_and_show_queues_by_name(shared_gateway: GatewayProcess) -> None:
    name = "metrics.orders"
    earlier = samples(shared_gateway)
    assert shared_gateway.run("queue", "declare", name).returncode == 0
    for _ in range(3):
        assert shared_gateway.run("publish", "--queue", name, "x").returncode == 0
    key = ("howdah_queue_ready", ("classic", name, "/"))
    wait_until(lambda: samples(shared_gateway).get(key) == 3)
    after = samples(shared_gateway)
    assert after["howdah_published_total", ()] >= earlier["howdah_published_total", ()] + 3
    assert after["howdah_outbox_drained_total", ()] >= 3
    assert after["howdah_queue_consumers", ("classic", name, "/")] == 0
    assert after["howdah_ready", ()] == 1
    assert after["howdah_connections", ("mqtt",)] == 0
    errors = ("howdah_mqtt_protocol_errors_total", ())
    assert after[errors] == earlier[errors]
    assert after["process_resident_memory_bytes", ()] > 0


def test_an_unknown_path_says_what_there_is(shared_gateway: GatewayProcess) -> None:
    status, text, _ = get(shared_gateway, "/nothing")
    assert status == 404
    assert "/api/openapi.json" in json.loads(text)["reason"]


async def test_the_database_of_a_gateway_is_within_reach_of_sql(
    shared_gateway: GatewayProcess,
) -> None:
    connection = await asyncpg.connect(shared_gateway.database_url)
    try:
        assert await connection.fetchval("SELECT count(*) FROM howdah.vhost") >= 1
    finally:
        await connection.close()
