"""Runs: messages to one topic that came one behind the other, and differ by payload alone.

A publisher that is fast sends many to one topic, and each of its subscribers gets the same bytes,
but for packet identifiers. Where all subscribers are of the publisher's version and ask for nothing
special, a run is copied whole to each of them: no message is made that nobody keeps. Where the
topic leads into one queue, it takes them together. Whatever does not fit goes the way of single
messages, in `hot`.

From the chunk to one subscriber's output, 100-byte payloads, in runs of 500: 0.23 us a message at
QoS 0 and 0.6 us at QoS 1, against 2.3 us and 3.3 us one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from protocols.mqtt.deliver.delivering import Deliverer

if TYPE_CHECKING:
    from queue_core.delivery.consumer import Consumer
    from queue_core.queues.queue import Queue
    from queue_core.routing.route import Route

MOST: Final = 1000  # messages of one run
DELIVERIES: Final = 20_000  # that one run sets going


class Run(NamedTuple):
    end: int  # in the chunk
    marks: list[int]  # behind each topic, relative to the run's beginning: identifiers are there
    ends: list[int]  # of each message, in the same way

    def largest(self) -> int:
        """Bytes of its largest packet."""
        return max(end - start for start, end in zip((0, *self.ends), self.ends, strict=False))


def find_run(
    data: bytes,
    position: int,
    topic_at: int,
    topic_end: int,
    end: int,
    *,
    most: int,
    limit: int,
    properties: bytes,
) -> Run:
    """The run that begins at `position` with a packet that was looked at already: its topic lies
    at `topic_at`, with its length, and it ends at `end`. All are of the same QoS and topic, no
    larger than `limit`, have an identifier if they need one, and these properties, with their
    length; in 3.x none."""
    size, said = len(data), len(properties)
    head = data[position]
    gap = 2 if head & 0x06 else 0
    prefix, topic = data[position:topic_end], data[topic_at:topic_end]
    prefix_size, topic_size = len(prefix), len(topic)
    frame = end - position
    mark = topic_end - position
    marks, ends = [mark], [frame]
    at = end
    while len(marks) < most:
        if data[at : at + prefix_size] == prefix:
            id_at, end = at + mark, at + frame  # of the same length as the one before
        else:
            if at + 4 > size or data[at] != head:
                break
            length, start = data[at + 1], at + 2
            if length >= 0x80:
                if not 0 < data[start] < 0x80:
                    break
                length = length & 0x7F | data[start] << 7
                start += 1
            id_at, end = start + topic_size, start + length
            if data[start:id_at] != topic:
                break
            frame, mark = end - at, id_at - at
            prefix = data[at:id_at]
            prefix_size = len(prefix)
        said_at = id_at + gap
        if end > size or frame > limit or said_at + said > end:
            break
        if gap and not (data[id_at] or data[id_at + 1]):
            break
        # most have none: their length alone is 0.03 us less to look at
        if said and data[said_at] != said - 1:
            break
        if said > 1 and data[said_at : said_at + said] != properties:
            break
        marks.append(id_at - position)
        ends.append(end - position)
        at = end
    return Run(at, marks, ends)


def takers_of(route: Route[Queue], qos: int, is_5: bool) -> list[tuple[Deliverer, Consumer]] | None:
    """Those who are to get a message, if every one of them takes it now, as it came."""
    takers: list[tuple[Deliverer, Consumer]] = []
    for queue, options in route:
        taker = taker_of(queue, options, qos, is_5)
        if taker is None:
            return None
        takers.append(taker)
    return takers


def taker_of(
    queue: Queue, options: tuple[object, ...], qos: int, is_5: bool
) -> tuple[Deliverer, Consumer] | None:
    """Who is to get a message through this queue, if it takes it now, as it came."""
    consumer = queue.direct_consumer()
    if consumer is None or len(options) != 1:
        return None
    sink, option = consumer.sink, options[0]
    if (
        type(sink) is not Deliverer
        or sink.is_5 is not is_5
        or not sink.is_plain
        or option.extra is not None  # type: ignore[attr-defined]
        or (qos and not option.qos)  # type: ignore[attr-defined]
    ):
        return None
    return sink, consumer
