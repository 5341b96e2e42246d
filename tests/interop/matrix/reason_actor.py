"""MQTT 5 with gmqtt: settles by the reason code of its PUBACK, when it has decided."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

import gmqtt

from tests.interop.matrix.letters import PREFETCH, Actor, Letter, Place, Received, Verdict
from tests.interop.matrix.mqtt_actor import address
from tests.support.gateway_process import GatewayProcess
from tests.support.names import fresh
from tests.support.until import PATIENCE_SECONDS

T = TypeVar("T")
REASONS = {Verdict.ACCEPT: 0x00, Verdict.RELEASE: 0x83, Verdict.REJECT: 0x99}


class Came(NamedTuple):
    body: bytes
    said: dict[str, Any]
    reason: Future[int]


class Mqtt5Reasons(Actor):
    says = hears = frozenset({"body"})  # the others' properties are looked at by another actor
    verdicts = frozenset({Verdict.ACCEPT, Verdict.RELEASE, Verdict.REJECT})

    def __init__(self, gateway: GatewayProcess, credit: int = PREFETCH) -> None:
        super().__init__(gateway, credit)
        self._came: queue.Queue[Came] = queue.Queue()
        self._subscribed = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._client = self._run(self._connect())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_SECONDS)

    async def _connect(self) -> Any:
        client = gmqtt.Client(
            fresh("reasons"), optimistic_acknowledgement=False, receive_maximum=self.credit
        )
        client.set_config({"reconnect_retries": 0})
        client.on_message = self._on_message
        client.on_subscribe = lambda *_: self._subscribed.set()
        await client.connect("127.0.0.1", self.gateway.ports["mqtt"])
        return client

    async def _on_message(self, _c: Any, _t: str, body: bytes, _q: int, said: Any) -> int:
        came = Came(body, said, Future())
        self._came.put(came)
        return await asyncio.wrap_future(came.reason)

    def publish(self, place: Place, letter: Letter) -> None:
        raise ValueError("it only consumes: gmqtt does not tell when a publish is acknowledged")

    def consume(self, place: Place) -> None:
        self._loop.call_soon_threadsafe(self._client.subscribe, address(place), 1)
        assert self._subscribed.wait(PATIENCE_SECONDS)

    def receive(self) -> Received:
        came = self._came.get(timeout=PATIENCE_SECONDS)
        facts = dict(came.said.get("user_property", ()))
        return Received(
            Letter(came.body), bool(came.said["dup"]), int(facts["delivery-count"]), came.reason
        )

    def settle(self, received: Received, verdict: Verdict) -> None:
        received.token.set_result(REASONS[verdict])

    def stop(self) -> None:
        """Does nothing: deliveries that come back to this client are released when it leaves."""

    def settled(self) -> None:
        """A second subscription is answered behind the acknowledgements; two turns of the loop for
        the client to write them."""
        for _ in range(2):
            self._run(asyncio.sleep(0))
        self._subscribed.clear()
        self._loop.call_soon_threadsafe(self._client.subscribe, fresh("matrix/barrier"), 1)
        assert self._subscribed.wait(PATIENCE_SECONDS)

    def cut(self) -> None:
        self._loop.call_soon_threadsafe(self._client._connection._transport.abort)

    def close(self) -> None:
        if self._loop.is_closed():
            return
        self._run(self._leave())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _leave(self) -> None:
        await self._client.disconnect()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:  # those that wait for a verdict
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
