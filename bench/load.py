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

from bench import amqp091_load, amqp10_load, mqtt_load
from bench.flow import PERCENTILES, Flow, Spec

SENDERS: Final = {
    "mqtt": mqtt_load.make_publisher,
    "amqp091": amqp091_load.make_publisher,
    "amqp10": amqp10_load.make_sender,
}
RECEIVERS: Final = {
    "mqtt": mqtt_load.make_subscriber,
    "amqp091": amqp091_load.make_consumer,
    "amqp10": amqp10_load.make_receiver,
}


async def run(spec: Spec) -> dict[str, object]:
    flow = Flow(spec)
    flow.senders += [SENDERS[spec.publish](flow, number) for number in range(spec.publishers)]
    modulus = flow.senders[0].ring // spec.queues
    for number in range(spec.consumers):
        flow.receivers.append(RECEIVERS[spec.consume](flow, number, modulus))
    await flow.open()
    print("ready", flush=True)
    cpu = time.process_time()
    seconds = await flow.run()
    flow.close()
    return {
        "seconds": seconds,
        "messages": sum(sender.sent for sender in flow.senders),
        "deliveries": sum(receiver.received for receiver in flow.receivers),
        "load_cpu": time.process_time() - cpu,
        "percentiles": list(PERCENTILES),
        "delivery_seconds": flow.delivery_times.percentiles(),
        "confirm_seconds": flow.confirm_times.percentiles(),
    }


def main() -> None:
    spec = msgspec.json.decode(sys.argv[1], type=Spec)
    with amqp091_load.declared(spec):
        result = uvloop.run(run(spec))
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
