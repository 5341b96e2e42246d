"""MQTT.js: one node process for all its clients, commanded by lines of JSON."""

from __future__ import annotations

import base64
import itertools
import json
import queue
import shutil
import subprocess
import threading
from typing import Any, Final

from protocols.mqtt.wire.packets import Publish, Version
from protocols.mqtt.wire.property_set import PropertySet
from tests.interop.mqtt.plans import Answer, Facts, Heard, Message, Plan, Refused
from tests.interop.mqtt.wire import fields_of
from tests.interop.node_clients import SOURCES, installed
from tests.support.scram_client import ScramClient
from tests.support.until import PATIENCE_SECONDS

SCRIPT: Final = "mqtt_peer.js"
NAMES: Final = {
    "payload_format": "payloadFormatIndicator",
    "message_expiry": "messageExpiryInterval",
    "content_type": "contentType",
    "response_topic": "responseTopic",
    "correlation_data": "correlationData",
    "subscription_identifiers": "subscriptionIdentifier",
    "session_expiry": "sessionExpiryInterval",
    "assigned_client_id": "assignedClientIdentifier",
    "server_keep_alive": "serverKeepAlive",
    "authentication_method": "authenticationMethod",
    "authentication_data": "authenticationData",
    "request_problem": "requestProblemInformation",
    "will_delay": "willDelayInterval",
    "request_response": "requestResponseInformation",
    "response_information": "responseInformation",
    "server_reference": "serverReference",
    "reason_string": "reasonString",
    "receive_maximum": "receiveMaximum",
    "topic_alias_maximum": "topicAliasMaximum",
    "topic_alias": "topicAlias",
    "maximum_qos": "maximumQoS",
    "retain_available": "retainAvailable",
    "user": "userProperties",
    "maximum_packet_size": "maximumPacketSize",
    "wildcard_available": "wildcardSubscriptionAvailable",
    "identifiers_available": "subscriptionIdentifiersAvailable",
    "shared_available": "sharedSubscriptionAvailable",
}
OURS: Final = {name: field for field, name in NAMES.items()}
FLAGS: Final = (
    "payload_format",
    "request_problem",
    "request_response",
    "retain_available",
    "wildcard_available",
    "identifiers_available",
    "shared_available",
)


def written(properties: PropertySet) -> dict[str, Any] | None:
    said: dict[str, Any] = {}
    for field in fields_of(properties):
        value = getattr(properties, field)
        if field == "user":
            names = dict.fromkeys(name for name, _ in value)
            value = {name: [said for key, said in value if key == name] for name in names}
        elif field == "subscription_identifiers":
            value = value[0]
        elif field in FLAGS:
            value = bool(value)
        said[NAMES[field]] = _octets(value) if isinstance(value, bytes) else value
    return said or None


def read(properties: dict[str, Any]) -> Facts:
    facts: Facts = {}
    for name, value in properties.items():
        field = OURS[name]
        if field == "user":
            pairs = [(key, said) for key, said in value.items()]
            facts[field] = tuple(
                (key, each) for key, said in pairs for each in (said if _is_list(said) else [said])
            )
        elif field == "subscription_identifiers":
            facts[field] = tuple(value) if _is_list(value) else (value,)
        elif field in FLAGS:
            facts[field] = int(value)
        else:
            facts[field] = base64.b64decode(value["$"]) if isinstance(value, dict) else value
    return facts


def _is_list(value: object) -> bool:
    return isinstance(value, list)


def _octets(value: bytes) -> dict[str, str]:
    return {"$": base64.b64encode(value).decode()}


class Node:
    """The process. Every command has an answer, in whatever order they come."""

    def __init__(self) -> None:
        home = installed()
        shutil.copy(SOURCES / SCRIPT, home)
        self._process = subprocess.Popen(
            ["node", SCRIPT], cwd=home, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._numbers = itertools.count(1)
        self._answers: dict[int, queue.Queue[dict[str, Any]]] = {}
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                answer = json.loads(line)
                self._answers.pop(answer["id"]).put(answer)

    def do(self, operation: str, seat: int, **words: Any) -> dict[str, Any]:
        number = next(self._numbers)
        waiting = self._answers[number] = queue.Queue()
        assert self._process.stdin is not None
        line = json.dumps({"id": number, "op": operation, "seat": seat, **words})
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = waiting.get(timeout=PATIENCE_SECONDS)
        assert "error" not in answer, answer["error"]
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE_SECONDS)
        self._reader.join(PATIENCE_SECONDS)


class MqttJsSeat:
    _numbers = itertools.count(1)

    def __init__(self, node: Node, port: int, transport: str, plan: Plan) -> None:
        self.heard = Heard()
        self.challenge: Facts = {}
        self._node = node
        self._plan = plan
        self._seat = next(self._numbers)
        self._is_5 = plan.version is Version.V5
        path = f"mqtt://127.0.0.1:{port}" if transport == "tcp" else f"ws://127.0.0.1:{port}/mqtt"
        answer = self._do(
            "connect",
            url=path,
            options=self._options(plan),
            login=plan.scram,
            acknowledgements=written(plan.acknowledgements),
        )
        if "challenge" in answer:
            answer = self._prove(plan, answer["challenge"])
        self.heard.connack = read(answer["properties"])
        self.heard.is_resumed = answer["session"]
        if answer["reason"]:
            raise Refused(answer["reason"], self.heard.connack)
        self._subscribe(plan)

    def _do(self, operation: str, **words: Any) -> dict[str, Any]:
        return self._node.do(operation, self._seat, **words)

    def _options(self, plan: Plan) -> dict[str, Any]:
        options: dict[str, Any] = {
            "clientId": plan.client_id,
            "protocolVersion": int(plan.version),
            "protocolId": "MQIsdp" if plan.version is Version.V31 else "MQTT",
            "clean": plan.is_clean,
            "keepalive": plan.keep_alive,
        }
        if plan.password is not None:
            options |= {"username": "guest", "password": plan.password}
        if self._is_5:
            connect = plan.connect
            if plan.scram:
                self._scram = ScramClient("guest", "guest")
                connect = PropertySet(
                    authentication_method="SCRAM-SHA-256", authentication_data=self._scram.first()
                )
            options["properties"] = written(connect)
        if plan.will is not None:
            will = plan.will
            options["will"] = {
                "topic": will.topic,
                "payload": _octets(will.payload),
                "qos": will.qos,
                "retain": will.retain,
                "properties": written(will.properties),
            }
        return options

    def _prove(self, plan: Plan, challenge: dict[str, Any]) -> dict[str, Any]:
        """The second step of a login by SCRAM."""
        self.challenge = read(challenge)
        asked = self.challenge["authentication_data"]
        assert isinstance(asked, bytes)
        said = PropertySet(
            authentication_method="SCRAM-SHA-256",
            authentication_data=self._scram.final(asked),
            reason_string=plan.auth.reason_string,
            user=plan.auth.user,
        )
        return self._do("auth", properties=written(said))

    def is_server_right(self, proof: object) -> bool:
        return isinstance(proof, bytes) and self._scram.is_server_right(proof)

    def _subscribe(self, plan: Plan) -> None:
        for topic_filter in () if plan.resumes else plan.filters:
            said = written(plan.subscribe) if self._is_5 else None
            answer = self._do("subscribe", filter=topic_filter, qos=plan.qos, properties=said)
            self.heard.suback = Answer(answer["reason"], read(answer["properties"]))
        if plan.unsubscribe_from:
            answer = self._do(
                "unsubscribe", filter=plan.unsubscribe_from, properties=written(plan.unsubscribe)
            )
            self.heard.unsuback = Answer(answer["reason"], read(answer["properties"]))

    def message(self) -> Message:
        said = self._do("message")
        payload = base64.b64decode(said["payload"]["$"])
        return Message(
            said["topic"], payload, said["qos"], said["retain"], read(said["properties"])
        )

    def ended(self) -> Answer:
        said = self._do("ended")
        return Answer(said["reason"], read(said["properties"]))

    def publish(self, message: Publish) -> Answer:
        answer = self._do(
            "publish",
            topic=message.topic,
            payload=_octets(message.payload),
            qos=message.qos,
            retain=message.retain,
            properties=written(message.properties) if self._is_5 else None,
        )
        said = answer["pubrec" if message.qos == 2 else "puback"]
        return Answer(said["reason"], read(said["properties"]))

    def leave(self) -> None:
        self._do("leave", properties=written(self._plan.disconnect) if self._is_5 else None)

    def lose(self) -> None:
        self._do("lose")


class MqttJsPeer:
    def __init__(self) -> None:
        self._node = Node()

    def listen(self, port: int, transport: str, plan: Plan) -> MqttJsSeat:
        return MqttJsSeat(self._node, port, transport, plan)

    def publish(
        self, port: int, transport: str, plan: Plan, messages: tuple[Publish, ...]
    ) -> list[Answer]:
        seat = self.listen(port, transport, plan)
        answers = [seat.publish(each) for each in messages]
        seat.leave()
        return answers

    def close(self) -> None:
        self._node.close()
