"""Debian's mosquitto_pub and mosquitto_sub: a process for each client, heard by what it prints."""

from __future__ import annotations

import queue
import re
import shutil
import subprocess
import threading
from typing import Final

import pytest
from msgspec.structs import replace

from protocols.mqtt.wire.packets import Publish, Version
from protocols.mqtt.wire.property_set import PropertySet
from tests.interop.mqtt.plans import Answer, Facts, Heard, Message, Plan, Refused
from tests.interop.mqtt.wire import fields_of
from tests.support.until import PATIENCE_SECONDS

NAMES: Final = {
    "payload_format": "payload-format-indicator",
    "message_expiry": "message-expiry-interval",
    "subscription_identifiers": "subscription-identifier",
    "session_expiry": "session-expiry-interval",
    "request_problem": "request-problem-information",
    "request_response": "request-response-information",
    "will_delay": "will-delay-interval",
    "user": "user-property",
}
VERSIONS: Final = {Version.V31: "mqttv31", Version.V311: "mqttv311", Version.V5: "mqttv5"}
LEAVING_SECONDS: Final = 3.0  # for mosquitto_sub to end by itself, before it is killed
MARK: Final = "message|"
# What -F can show of a message, and the field that it is.
SHOWN: Final = {
    "%t": "topic",
    "%p": "payload",
    "%q": "qos",
    "%r": "retain",
    "%F": "payload_format",
    "%E": "message_expiry",
    "%C": "content_type",
    "%R": "response_topic",
    "%D": "correlation_data",
    "%S": "subscription_identifiers",
    "%A": "topic_alias",
    "%P": "user",
}
NUMBERS: Final = ("payload_format", "message_expiry", "topic_alias")
DIARY: Final = re.compile(r"Client (\S+) (.*)")


def installed(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed (Debian's package mosquitto-clients)")
    return path


def defined(packet: str, properties: PropertySet) -> list[str]:
    """Writes properties as the options of mosquitto_pub and mosquitto_sub."""
    options = []
    for field in fields_of(properties):
        name, value = NAMES.get(field, field.replace("_", "-")), getattr(properties, field)
        pairs = value if field == "user" else [value[0] if isinstance(value, tuple) else value]
        for each in pairs:
            words = each if field == "user" else (each,)
            options += ["-D", packet, name, *(_text(word) for word in words)]
    return options


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def options_of(port: int, plan: Plan) -> list[str]:
    options = ["-d", "-h", "127.0.0.1", "-p", str(port), "-V", VERSIONS[plan.version]]
    options += ["-k", str(plan.keep_alive), "-q", str(plan.qos)]
    options += ["-i", plan.client_id] if plan.client_id else []
    options += [] if plan.is_clean else ["-c"]
    options += [] if plan.password is None else ["-u", "guest", "-P", plan.password]
    if plan.version is Version.V5:
        expiry = plan.connect.session_expiry  # has an option of its own
        options += [] if expiry is None else ["-x", str(expiry)]
        options += defined("connect", replace(plan.connect, session_expiry=None))
        options += defined("disconnect", plan.disconnect)
    if plan.will is not None:
        options += ["--will-topic", plan.will.topic, "--will-payload", plan.will.payload.decode()]
        options += ["--will-qos", str(plan.will.qos)] + (["--will-retain"] * plan.will.retain)
        options += defined("will", plan.will.properties)
    return options


class MosquittoSeat:
    def __init__(self, port: int, plan: Plan) -> None:
        self.heard = Heard()
        shown = "|".join(SHOWN)
        options = [*options_of(port, plan), "-F", MARK + shown]
        for topic_filter in plan.filters or ("nothing",):  # it must have one
            options += ["-t", topic_filter]
        options += defined("subscribe", plan.subscribe) + defined("unsubscribe", plan.unsubscribe)
        options += ["-U", plan.unsubscribe_from] if plan.unsubscribe_from else []
        self._process = subprocess.Popen(  # a line at a time, though it writes into a pipe
            ["stdbuf", "-oL", installed("mosquitto_sub"), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._messages: queue.Queue[Message] = queue.Queue()
        self._diary: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        try:
            self._start(plan)
        except BaseException:
            self.lose()
            raise

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                if line.startswith(MARK):
                    self._messages.put(_message(line.rstrip("\n").removeprefix(MARK)))
                else:
                    self._diary.put(line.rstrip("\n"))
        self._diary.put("")

    def _start(self, plan: Plan) -> None:
        reason = int(self._await(r"received CONNACK \((\d+)\)")[1])
        if reason:
            raise Refused(reason, {})
        reasons = self._await(r"Subscribed \(mid: \d+\): ([\d, ]+)")[1].split(", ")
        self.heard.suback = Answer(int(reasons[-1]))
        if plan.unsubscribe_from:
            self._await("received UNSUBACK")

    def _await(self, pattern: str) -> re.Match[str]:
        """The next line of its diary that says this."""
        passed = []
        while line := self._diary.get(timeout=PATIENCE_SECONDS):
            named = DIARY.match(line)
            if named is not None and named[1] != "(null)":
                self.heard.connack["assigned_client_id"] = named[1]
            found = re.search(pattern, line)
            if found is not None:
                return found
            passed.append(line)
        raise AssertionError(f"mosquitto_sub ended without '{pattern}': {passed}")

    def message(self) -> Message:
        return self._messages.get(timeout=PATIENCE_SECONDS)

    def ended(self) -> Answer:
        return Answer(int(self._await(r"[Rr]eceived DISCONNECT \((\d+)\)")[1]))

    def leave(self) -> None:
        """Asks it to, which it answers with DISCONNECT, unless the signal finds it at work: its
        handler takes locks that it may have, and then it stands still."""
        self._process.terminate()
        try:
            self._process.wait(LEAVING_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._finish()

    def lose(self) -> None:
        self._process.kill()
        self._finish()

    def _finish(self) -> None:
        self._process.wait(PATIENCE_SECONDS)
        self._reader.join(PATIENCE_SECONDS)


def _message(line: str) -> Message:
    said = dict(zip(SHOWN.values(), line.split("|"), strict=True))
    facts: Facts = {}
    for field in list(SHOWN.values())[4:]:
        value = said[field]
        if not value:
            continue
        if field in NUMBERS:
            facts[field] = int(value)
        elif field == "user":
            facts[field] = tuple(tuple(pair.split(":", 1)) for pair in value.split(" "))
        elif field == "subscription_identifiers":
            facts[field] = (int(value),)
        else:
            facts[field] = value.encode() if field == "correlation_data" else value
    return Message(
        said["topic"], said["payload"].encode(), int(said["qos"]), said["retain"] == "1", facts
    )


class MosquittoPeer:
    def __init__(self) -> None:
        # Skips before a test begins: one that has begun is held to what it claims.
        for name in ("mosquitto_pub", "mosquitto_sub"):
            installed(name)

    def listen(self, port: int, transport: str, plan: Plan) -> MosquittoSeat:
        return MosquittoSeat(port, plan)

    def publish(
        self, port: int, transport: str, plan: Plan, messages: tuple[Publish, ...]
    ) -> list[Answer]:
        return [self._publish(port, plan, each) for each in messages]

    def _publish(self, port: int, plan: Plan, message: Publish) -> Answer:
        return _answer(output_of(port, plan, message))

    def close(self) -> None:
        """Nothing is left of it."""


def _answer(output: str) -> Answer:
    refused = re.search(r"received CONNACK \((\d+)\)", output)
    assert refused is not None, output
    if int(refused[1]):
        raise Refused(int(refused[1]), {})
    code = re.search(r"received PUBACK \(Mid: \d+, RC:(\d+)\)", output)
    # A reason string stands alone on the line behind its warning.
    said = re.search(r"Warning: Publish \d+ failed: [^\n]*\n([^\n]+)", output)
    facts: Facts = {} if said is None else {"reason_string": said[1]}
    return Answer(int(code[1]) if code else 0, facts)


def output_of(port: int, plan: Plan, message: Publish) -> str:
    """Everything that mosquitto_pub prints. With an alias it says a message twice, the second time
    without its topic."""
    options = [*options_of(port, plan), "-t", message.topic, "-q", str(message.qos)]
    options += ["-m", message.payload.decode()] if message.payload else ["-n"]
    options += (["-r"] * message.retain) + defined("publish", message.properties)
    if message.properties.topic_alias is not None:
        options += ["--repeat", "2"]
    done = subprocess.run(
        [installed("mosquitto_pub"), *options],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    return done.stdout + done.stderr


def acted_on(port: int, max_packet: int) -> Facts:
    """Reads CONNACK's limits from what mosquitto_pub does with messages beyond them."""
    facts: Facts = {}
    if "QoS not supported" in output_of(port, Plan(), Publish("a", b"x", 2)):
        facts["maximum_qos"] = 1
    if re.search(
        r"sending PUBLISH \(d0, q0, r0", output_of(port, Plan(), Publish("a", retain=True))
    ):
        facts["retain_available"] = 0
    for size, is_sent in ((max_packet - 100, True), (max_packet, False)):
        if ("sending PUBLISH" in output_of(port, Plan(), Publish("a", b"x" * size))) != is_sent:
            return facts
    return facts | {"maximum_packet_size": max_packet}
