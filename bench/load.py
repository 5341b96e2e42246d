"""The load process: `python -m bench.load SPEC`, JSON with the fields of bench.flow.Spec.

Prints `ready` when all are connected and encoded and the clock starts, and one line of JSON at the
end. Whoever measures the broker reads its counters at these two lines.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Final

import msgspec
import uvloop

from bench import amqp091_load, amqp10_load, mqtt5_load, mqtt_load
from bench.flow import PERCENTILES, Flow, Spec, percentiles

SENDERS: Final = {
    "mqtt": mqtt_load.make_publisher,
    "mqtt5": mqtt5_load.make_publisher,
    "amqp091": amqp091_load.make_publisher,
    "amqp10": amqp10_load.make_sender,
}
RECEIVERS: Final = {
    "mqtt": mqtt_load.make_subscriber,
    "mqtt5": mqtt5_load.make_subscriber,
    "amqp091": amqp091_load.make_consumer,
    "amqp10": amqp10_load.make_receiver,
}


async def run(spec: Spec) -> dict[str, object]:
    flow = Flow(spec)
    for number in range(spec.publishers):
        flow.senders.append(SENDERS[spec.publish](flow, number))
    modulus = flow.senders[0].ring // spec.queues
    for number in range(0 if spec.is_settled else spec.consumers):
        flow.receivers.append(RECEIVERS[spec.consume](flow, number, modulus))
    await flow.open()
    print("ready", flush=True)
    cpu = time.process_time()
    seconds = await flow.run()
    flow.close()
    return {
        "seconds": seconds,
        "messages": sum(sender.sent for sender in flow.senders),
        "deliveries": flow.deliveries(),
        "load_cpu": time.process_time() - cpu,
        "percentiles": list(PERCENTILES),
        "delivery_seconds": percentiles(flow.delivery_times),
        "confirm_seconds": percentiles(flow.confirm_times),
        "send_seconds": percentiles(flow.send_times),
    }


def main() -> None:
    spec = msgspec.json.decode(sys.argv[1], type=Spec)
    with amqp091_load.declared(spec), amqp091_load.bystanders(spec.amqp_port, spec.bystanders):
        result = uvloop.run(run(spec))
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
