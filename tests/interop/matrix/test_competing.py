"""Workers of three protocols on one classic queue: each settles in its own way, one is killed, and
every message is done once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.interop.matrix.amqp091_actor import Amqp091
from tests.interop.matrix.amqp10_actor import Amqp10
from tests.interop.matrix.letters import Actor, Cast, Letter, Place, Verdict
from tests.interop.matrix.mqtt_actor import Mqtt5, Mqtt311
from tests.interop.matrix.sql_actor import Sql
from tests.support.gateway_process import ROOT, GatewayProcess
from tests.support.names import fresh

WORKERS: dict[str, type[Actor]] = {"mqtt": Mqtt5, "amqp0.9.1": Amqp091, "amqp1.0": Amqp10}
SHARE = 5  # what the victim gets into its hands


@pytest.mark.parametrize("victim", WORKERS)
def test_what_a_killed_worker_had_goes_to_the_others_flagged(
    cast: Cast, house: Amqp091, victim: str
) -> None:
    """The consumer's socket ends without a word while it holds messages; some are accepted."""
    queue = house.declare(fresh("work"))
    for number in range(SHARE):
        house.publish(queue, Letter(b"%d" % number))
    dying = cast(WORKERS[victim])
    dying.consume(queue)
    held = dying.take(SHARE)
    dying.stop()
    survivors = [cast(make, credit=2) for name, make in WORKERS.items() if name != victim]
    for worker in survivors:
        worker.consume(queue)
    dying.settle(held[0], Verdict.ACCEPT)
    dying.settled()
    dying.cut()
    done = [held[0]]
    shares = [worker.take(2) for worker in survivors]
    for worker, share in zip(survivors, shares, strict=True):
        for received in share:
            assert (received.redelivered, received.failures) == (True, 1)
            worker.settle(received, Verdict.ACCEPT)
        worker.settled()
        done += share
    assert sorted(each.letter.body for each in done) == [b"%d" % n for n in range(SHARE)]
    assert _is_empty(cast, queue)


def _is_empty(cast: Cast, queue: Place) -> bool:
    """Nothing is left, and nothing was in there twice."""
    sql = cast(Sql)
    sql.until("SELECT count(*) = 0 FROM howdah.peek($1)", queue.name)
    return True


def test_three_protocols_share_the_work_and_each_settles_in_its_own_way(
    cast: Cast, house: Amqp091
) -> None:
    """Each releases one and rejects one of its first, and accepts the rest of what it gets."""
    dead = house.declare(fresh("dead"))
    queue = house.declare(
        fresh("work"), x_dead_letter_exchange="", x_dead_letter_routing_key=dead.name
    )
    workers = [cast(make, credit=2) for make in WORKERS.values()]
    for worker in workers:
        worker.consume(queue)
    for number in range(9):
        house.publish(queue, Letter(b"%d" % number))
    accepted: Counter[bytes] = Counter()
    rejected: Counter[bytes] = Counter()
    released: Counter[bytes] = Counter()
    for worker in workers:
        first, second = worker.take(2)
        worker.settle(first, Verdict.RELEASE)
        worker.settle(second, Verdict.REJECT)
        worker.settled()
        released[first.letter.body] += 1
        rejected[second.letter.body] += 1
    assert len(rejected) == 3
    # What is left goes to a fourth.
    for worker in workers:
        worker.close()
    last = cast(Mqtt311)
    last.consume(queue)
    for received in last.take(6):
        accepted[received.letter.body] += 1
        assert received.redelivered or received.letter.body not in released
        last.settle(received, Verdict.ACCEPT)
    last.settled()
    assert sorted(accepted + rejected) == [b"%d" % number for number in range(9)]
    assert max((accepted + rejected).values()) == 1
    assert _is_empty(cast, queue)
    mourner = cast(Amqp091)
    mourner.consume(dead)
    assert Counter(each.letter.body for each in mourner.take(3)) == rejected


# --- processes

WORKER = """
import sys
from tests.support.gateway_process import GatewayProcess
from tests.interop.matrix import test_competing
from tests.interop.matrix.letters import Kind, Place, Verdict

class There:
    ports = {"mqtt": int(sys.argv[2]), "amqp": int(sys.argv[3])}
    def amqp_url(self):
        return f"amqp://guest:guest@127.0.0.1:{self.ports['amqp']}/%2F"

worker = test_competing.WORKERS[sys.argv[1]](There(), 4)
worker.consume(Place(Kind.CLASSIC, sys.argv[4]))
print("ready", flush=True)
while True:
    received = worker.receive()
    print(received.letter.body.decode(), int(received.redelivered), flush=True)
    sys.stdin.readline()  # the word to go on
    worker.settle(received, Verdict.ACCEPT)
    worker.settled()
    print("done", received.letter.body.decode(), flush=True)
"""


class Process:
    """A worker in a process of its own, which works when it is told to."""

    def __init__(self, name: str, gateway: GatewayProcess, queue: Place) -> None:
        ports = [str(gateway.ports[each]) for each in ("mqtt", "amqp")]
        self.child = subprocess.Popen(
            [sys.executable, "-c", WORKER, name, *ports, queue.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert self.line() == "ready"

    def line(self) -> str:
        assert self.child.stdout is not None
        return self.child.stdout.readline().strip()

    def go_on(self) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write("\n")
        self.child.stdin.flush()

    def kill(self) -> None:
        if self.child.poll() is None:
            os.kill(self.child.pid, signal.SIGKILL)
        self.child.wait()
        for pipe in (self.child.stdin, self.child.stdout):
            assert pipe is not None
            pipe.close()


@pytest.fixture
def processes(
    shared_gateway: GatewayProcess, house: Amqp091
) -> Iterator[tuple[Place, dict[str, Process]]]:
    queue = house.declare(fresh("work"))
    made: dict[str, Process] = {}
    try:
        for name in WORKERS:
            made[name] = Process(name, shared_gateway, queue)
        yield queue, made
    finally:
        for each in made.values():
            each.kill()


def test_kill_9_of_each_worker_in_turn_loses_nothing_and_doubles_nothing(
    cast: Cast, house: Amqp091, processes: tuple[Place, dict[str, Process]]
) -> None:
    queue, workers = processes
    bodies = [str(number) for number in range(12)]
    for body in bodies:
        house.publish(queue, Letter(body.encode()))
    done: Counter[str] = Counter()
    flagged = set()
    for victim in ("mqtt", "amqp1.0"):
        process = workers[victim]
        process.line()  # it has one in its hands, and up to three more behind it
        process.go_on()
        done[process.line().removeprefix("done ")] += 1
        process.kill()
    survivor = workers["amqp0.9.1"]
    while sum(done.values()) < len(bodies):
        body, redelivered = survivor.line().split()
        if redelivered == "1":
            flagged.add(body)
        survivor.go_on()
        assert survivor.line() == f"done {body}"
        done[body] += 1
    assert done == Counter(bodies)
    assert flagged  # those that the killed had in their hands
    assert _is_empty(cast, queue)
