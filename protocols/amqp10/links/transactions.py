"""Local transactions: declare, discharge, and what is published and retired between the two.

All of one transaction is one transaction of the database; nothing of it is seen before that, and
rolled back it leaves no trace.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from protocols.amqp10.engine import proton as engine
from protocols.amqp10.engine.proton import Handle
from protocols.amqp10.errors import (
    DECODE_ERROR,
    NOT_IMPLEMENTED,
    RESOURCE_LIMIT,
    ROLLED_BACK,
    UNKNOWN_TRANSACTION,
    Amqp10Error,
)
from protocols.amqp10.links.outcomes import outcome_of
from protocols.amqp10.negotiated_terms import Terms
from protocols.amqp10.wire.sections import (
    VALUE,
    section_at,
    shape_of,
    split,
    value_of,
    written_body,
)
from protocols.amqp10.wire.types import Described, Malformed, ULong
from protocols.carrier import Carrier
from queue_core.delivery.consumer import ENTRY_OVERHEAD_BYTES, Consumer, Delivery
from queue_core.errors import CoreError
from queue_core.message.message import Message
from queue_core.outcomes import FAILED, RELEASED, Published
from queue_core.transaction import Transaction

if TYPE_CHECKING:
    from protocols.amqp10.client import Client

MAX_COMMAND_BYTES: Final = 4096  # of a declare or a discharge
DECLARE: Final = (0x31, "amqp:declare:list")
DISCHARGE: Final = (0x32, "amqp:discharge:list")
ACCEPTED_STATE: Final = Described(ULong(0x24), [])
RELEASED_STATE: Final = Described(ULong(0x26), [])


class Work:
    """One open transaction."""

    def __init__(self, transaction: Transaction, control: object) -> None:
        self.transaction = transaction
        self.control = control  # the link that it was declared on, and ends with
        self.size = 0
        self.failure = ""  # why it can only be rolled back
        self.settled: list[Delivery] = []  # the receiver will not speak of these again


class Coordinator:
    """The transactions of one connection, each for as long as the link that declared it."""

    def __init__(self, terms: Terms, carrier: Carrier, outgoing: dict[Handle, Delivery]) -> None:
        self._terms = terms
        self._vhost = terms.vhost
        self._carrier = carrier
        self._outgoing = outgoing  # everything that the client has not settled
        self._open: dict[bytes, Work] = {}
        self._size = 0  # bytes in all of them
        self._next = 0

    # --- declare and discharge

    def read(self, data: bytes) -> tuple[bytes, bool] | None:
        """Reads a discharge's transaction and whether it failed; None: a declare. Raises
        Amqp10Error."""
        try:
            parts = split(data)
            written = written_body(shape_of(parts.native), parts.body)
            if section_at(written, 0)[0] != VALUE:
                raise Malformed("no amqp-value")
            command = value_of(written)
        except Malformed as error:
            raise Amqp10Error(DECODE_ERROR, f"no declare and no discharge: {error}") from None
        if not isinstance(command, Described) or not isinstance(command.value, list):
            raise Amqp10Error(DECODE_ERROR, "a coordinator takes declare and discharge, no more")
        fields = (*command.value, None, None)
        if command.descriptor in DECLARE:
            if fields[0] is not None:
                raise Amqp10Error(NOT_IMPLEMENTED, "no global transactions; declare without an id")
            return None
        if command.descriptor in DISCHARGE:
            return (fields[0] if isinstance(fields[0], bytes) else b""), fields[1] is True
        raise Amqp10Error(NOT_IMPLEMENTED, "a coordinator takes declare and discharge, no more")

    def declare(self, control: object) -> bytes:
        limit = self._terms.settings.max_transactions
        if len(self._open) >= limit:
            raise Amqp10Error(
                RESOURCE_LIMIT, f"{limit} transactions are open on this connection; discharge one"
            )
        self._next += 1
        txn_id = self._next.to_bytes(8)
        self._open[txn_id] = Work(self._vhost.transaction(), control)
        return txn_id

    async def discharge(self, txn_id: bytes, *, fails: bool) -> None:
        """Ends a transaction. Raises Amqp10Error when it could not be committed; then it is rolled
        back."""
        work = self._work(txn_id)
        del self._open[txn_id]
        if fails:
            self._roll_back(work)
            return
        if work.failure:
            self._roll_back(work)
            raise Amqp10Error(ROLLED_BACK, f"a message of it was refused: {work.failure}")
        settled = list(work.settled)
        try:
            await work.transaction.commit()
        except CoreError as error:
            self._vhost.settle([each for each in settled if each.is_open], FAILED)
            raise Amqp10Error(ROLLED_BACK, str(error)) from None
        finally:
            self._grow(-work.size)
        if work.transaction.pressed:
            self._carrier.hold_for(work.transaction.pressed)

    def _grow(self, size: int) -> None:
        self._size += size
        self._carrier.add_transaction(size)

    def _roll_back(self, work: Work) -> None:
        self._grow(-work.size)
        work.transaction.rollback()
        self._vhost.settle([each for each in work.settled if each.is_open], FAILED)

    def end(self, control: object) -> None:
        """Rolls back the transactions of a link that ends and has not discharged them [4.1]."""
        for txn_id in [each for each, work in self._open.items() if work.control is control]:
            self._roll_back(self._open.pop(txn_id))

    def held(self, consumer: Consumer) -> list[Delivery]:
        """Lists a consumer's deliveries that were retired in transactions that are still open:
        whether the link lives on or not, their end decides."""
        return [
            delivery
            for work in self._open.values()
            for delivery in work.settled
            if delivery.consumer is consumer and delivery.is_open
        ]

    def _work(self, txn_id: object) -> Work:
        work = self._open.get(txn_id) if isinstance(txn_id, bytes) else None
        if work is None:
            raise Amqp10Error(
                UNKNOWN_TRANSACTION, "no such transaction is open on this connection; declare one"
            )
        return work

    # --- what is done in one

    def publish(self, delivery: Handle, message: Message) -> None:
        """Publishes a message in a transaction: routed now, seen by others at the discharge."""
        txn_id, _ = self._state(delivery)
        work = self._work(txn_id)
        settings, size = self._terms.settings, message.size()
        limit, most = settings.max_transaction_size, settings.max_connection_transactions
        if work.size + size > limit:  # one that fits alone may also be alone
            raise Amqp10Error(
                RESOURCE_LIMIT, f"a transaction holds {limit} bytes at most; discharge earlier"
            )
        if self._size + size > most:
            raise Amqp10Error(
                RESOURCE_LIMIT,
                f"the open transactions of one connection hold {int(most)} bytes at most "
                "(broker.max_connection_transactions); discharge one before the others grow",
            )
        room = min(limit - work.size, most - self._size) - size
        before = work.transaction.entries
        most_entries = inf if not self._size else 1 + room // ENTRY_OVERHEAD_BYTES
        is_taken = work.transaction.publish(message, (), most_entries) is not Published.NOWHERE
        # For each queue, an entry takes memory: also one whose message is empty.
        size += ENTRY_OVERHEAD_BYTES * max(1, work.transaction.entries - before)
        work.size += size
        self._grow(size)
        if not engine.is_settled(delivery):
            engine.accept_in_transaction(
                delivery, txn_id, ACCEPTED_STATE if is_taken else RELEASED_STATE
            )
        engine.settle(delivery)
        self._carrier.flush_soon()

    def doom(self, delivery: Handle, reason: str) -> None:
        """Fails the transaction of a message that was sent settled and is refused: its sender hears
        of it at the discharge."""
        try:
            txn_id, _ = self._state(delivery)
        except Amqp10Error:  # it names no transaction that could fail
            return
        work = self._open.get(txn_id)
        if work is not None:
            work.failure = work.failure or reason

    def retire(self, sent: Handle, delivery: Delivery) -> None:
        """Takes a receiver's outcome in a transaction: it becomes true at the discharge."""
        txn_id, outcome = self._state(sent)
        work = self._work(txn_id)
        verdict = outcome_of(outcome)
        if verdict is None:
            if not engine.is_settled(sent):
                return  # the receiver names the transaction, and has not decided yet
            verdict = delivery.consumer.sink.default or RELEASED  # type: ignore[attr-defined]
        work.transaction.settle([delivery], verdict)
        work.settled.append(delivery)
        del self._outgoing[sent]
        if not engine.is_settled(sent):
            engine.accept_in_transaction(sent, txn_id, outcome)
        engine.settle(sent)
        self._carrier.flush_soon()

    @staticmethod
    def _state(delivery: Handle) -> tuple[bytes, object]:
        fields = engine.state_data(delivery)
        if not isinstance(fields, list) or not fields or not isinstance(fields[0], bytes):
            raise Amqp10Error(UNKNOWN_TRANSACTION, "a transactional state without a transaction")
        return fields[0], fields[1] if len(fields) > 1 else None


class CoordinatorLink:
    """A link on which a client declares and discharges."""

    sent_count = delivery_count = 0  # nothing is sent on it

    def __init__(self, client: Client, handle: Handle) -> None:
        self._client = client
        self.handle = handle
        self.is_open = True

    def replenish(self) -> None:
        if self.is_open and engine.credit_of(self.handle) < 8:
            engine.grant(self.handle, 16)
            self._client.wake()

    async def perform(self, delivery: Handle, data: bytes) -> None:
        """Answers a declare or a discharge."""
        coordinator = self._client.coordinator
        try:
            discharge = coordinator.read(data)
            if discharge is None:
                engine.declare(delivery, coordinator.declare(self))
            else:
                txn_id, fails = discharge
                await coordinator.discharge(txn_id, fails=fails)
                if not self.is_open:
                    return
                engine.update(delivery, engine.ACCEPTED)
        except Amqp10Error as error:
            if not self.is_open:
                return
            engine.reject(delivery, error.condition, error.text)
        engine.settle(delivery)
        self.replenish()
        self._client.wake()

    def close(self, *, is_lost: bool, is_closed: bool = True) -> None:
        if self.is_open:
            self.is_open = False
            self._client.coordinator.end(self)
