"""Runs on the wire: PUBLISH packets to one topic that came one behind the other, and differ by
payload alone.

A publisher that is fast sends many to one topic, and each of its subscribers gets the same bytes,
but for packet identifiers. Where all subscribers are of the publisher's version and ask for nothing
special, a run is copied whole to each of them: no message is made that nobody keeps. Packets that
do not fit go the way of single messages, in `fast_path`.
"""

from __future__ import annotations

# Where a run ends in the chunk; the marks behind each topic, where identifiers are, and the end of
# each packet, both counted from the run's beginning.
RunFrames = tuple[int, list[int], list[int]]


# The packet that may begin a run: the chunk, where in it the packet begins, where its topic with
# its length begins and ends, and where the packet ends. A tuple, as most begin none.
FirstPacket = tuple[bytes, int, int, int, int]


def find_run(first: FirstPacket, *, most: int, limit: int, properties: bytes) -> RunFrames:
    """Finds the run that begins with a packet that was looked at already. All packets are of the
    same QoS and topic, no larger than `limit`, have an identifier if they need one, and these
    properties, with their length; in 3.x none."""
    data, position, topic_at, topic_end, end = first
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
    return at, marks, ends
