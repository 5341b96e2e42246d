"""Scripts that run against Debian's RabbitMQ and Howdah, answers compared channel by channel.

Codes, class and method ids, counts, flags, properties and bodies must be equal. Where they are
meant to differ, the step says so, they do differ, and the reason is in the conformance document.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.amqp091_argument_scripts import ARGUMENT_SCRIPTS
from tests.interop.amqp091_border_scripts import BORDER_SCRIPTS
from tests.interop.amqp091_flow_scripts import FLOW_SCRIPTS
from tests.interop.amqp091_history_scripts import HISTORY_SCRIPTS
from tests.interop.amqp091_script import Script, assert_same_answers
from tests.interop.amqp091_scripts import SCRIPTS
from tests.interop.amqp091_use_scripts import USE_SCRIPTS
from tests.interop.rabbitmq_server import rabbitmq
from tests.support.gateway_process import GatewayProcess

DOCUMENT = Path(__file__).parents[2] / "docs" / "conformance" / "amqp091.md"
ALL = [
    *SCRIPTS,
    *FLOW_SCRIPTS,
    *BORDER_SCRIPTS,
    *USE_SCRIPTS,
    *ARGUMENT_SCRIPTS,
    *HISTORY_SCRIPTS,
]
PLUGINS = ["rabbitmq_recent_history_exchange"]
DIFFERENCES = sorted({s.difference for script in ALL for s in script.steps if s.difference})


@pytest.fixture(scope="module")
def rabbitmq_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with rabbitmq(tmp_path_factory.mktemp("rabbitmq"), PLUGINS) as port:
        yield port


@pytest.mark.parametrize("script", ALL, ids=lambda script: script.name)
async def test_howdah_answers_as_rabbitmq_does(
    script: Script, rabbitmq_port: int, shared_gateway: GatewayProcess
) -> None:
    await assert_same_answers(script, shared_gateway.ports["amqp"], rabbitmq_port)


@pytest.mark.parametrize("difference", DIFFERENCES)
def test_every_wanted_difference_is_documented(difference: str) -> None:
    assert f"`{difference}`" in DOCUMENT.read_text()
