"""MQTT with clients of other makes: Debian's mosquitto_pub and mosquitto_sub (C), MQTT.js."""

from __future__ import annotations

import shutil
import subprocess
import threading

import pytest

from tests.gateway_process import GatewayProcess
from tests.interop.mqtt_names import fresh
from tests.interop.node_clients import run_script

SECONDS = 60
VERSIONS = ["mqttv31", "mqttv311", "mqttv5"]


def command(name: str, gateway: GatewayProcess, version: str, *arguments: str) -> list[str]:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed (Debian's package mosquitto-clients)")
    port = str(gateway.ports["mqtt"])
    return [path, "-h", "127.0.0.1", "-p", port, "-V", version, *arguments]


def publish(gateway: GatewayProcess, version: str, *arguments: str) -> None:
    done = subprocess.run(
        command("mosquitto_pub", gateway, version, *arguments),
        capture_output=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def subscribed(gateway: GatewayProcess, version: str, *arguments: str) -> subprocess.Popen[str]:
    """A subscriber that has its SUBACK."""
    # a line at a time: into a pipe it would say nothing before its end
    process = subprocess.Popen(
        ["stdbuf", "-oL", *command("mosquitto_sub", gateway, version, "-d", *arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "SUBACK" in line or "Subscribed" in line:
            return process
    raise AssertionError("mosquitto_sub ended before it was subscribed")


def rest(process: subprocess.Popen[str]) -> list[str]:
    """What it printed beside its own diary."""
    assert process.stdout is not None
    watch = threading.Timer(20, process.kill)
    watch.start()
    with process.stdout:
        output = process.stdout.read()
    process.wait()
    watch.cancel()
    return [line for line in output.splitlines() if not line.startswith(("Client ", "Subscribed"))]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_mosquitto_clients_speak_to_each_other(
    shared_gateway: GatewayProcess, version: str, qos: str
) -> None:
    topic = fresh("mosquitto/qos")
    process = subscribed(shared_gateway, version, "-t", f"{topic}/#", "-q", qos, "-C", "2", "-v")
    for word in ("one", "two"):
        publish(shared_gateway, version, "-t", f"{topic}/x", "-q", qos, "-m", word)
    assert rest(process) == [f"{topic}/x one", f"{topic}/x two"]


@pytest.mark.parametrize("version", VERSIONS)
def test_mosquitto_clients_see_retained_messages(
    shared_gateway: GatewayProcess, version: str
) -> None:
    topic = fresh("mosquitto/retained")
    publish(shared_gateway, version, "-t", topic, "-q", "1", "-r", "-m", "kept")
    process = subscribed(shared_gateway, version, "-t", topic, "-C", "1", "-F", "%r %p")
    assert rest(process) == ["1 kept"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_mosquitto_session_is_resumed(shared_gateway: GatewayProcess, version: str) -> None:
    name, topic = fresh("mosquitto"), fresh("mosquitto/session")
    lasting = ["-i", name, "-c", "-t", topic, "-q", "1"]
    if version == "mqttv5":
        lasting += ["-x", "300"]
    subprocess.run(
        command("mosquitto_sub", shared_gateway, version, *lasting, "-E"), timeout=20, check=True
    )
    publish(shared_gateway, version, "-t", topic, "-q", "1", "-m", "while away")
    back = subprocess.run(
        command("mosquitto_sub", shared_gateway, version, *lasting, "-C", "1"),
        capture_output=True,
        timeout=20,
        check=True,
    )
    assert back.stdout == b"while away\n"


@pytest.mark.parametrize("version", VERSIONS)
def test_the_will_of_a_killed_mosquitto_client_is_published(
    shared_gateway: GatewayProcess, version: str
) -> None:
    topic = fresh("mosquitto/will")
    witness = subscribed(shared_gateway, version, "-t", topic, "-C", "1")
    will = ["--will-topic", topic, "--will-payload", "gone", "--will-qos", "1"]
    lost = subscribed(shared_gateway, version, "-t", "nothing", *will)
    lost.kill()
    rest(lost)
    assert rest(witness) == ["gone"]


@pytest.mark.parametrize("version", VERSIONS)
def test_mosquitto_clients_share(shared_gateway: GatewayProcess, version: str) -> None:
    topic = fresh("mosquitto/shared")
    arguments = ["-t", f"$share/g/{topic}", "-q", "1", "-C", "3"]
    members = [subscribed(shared_gateway, version, *arguments) for _ in range(2)]
    for i in range(6):
        publish(shared_gateway, version, "-t", topic, "-q", "1", "-m", str(i))
    assert sorted(rest(members[0]) + rest(members[1])) == list("012345")


MOSQUITTO_SAID = (
    ("payload-format-indicator", "1"),
    ("message-expiry-interval", "100"),
    ("content-type", "text/plain"),
    ("response-topic", "r"),
    ("correlation-data", "c"),
    ("user-property", "a", "1"),
)
MOSQUITTO_SHOWS = "%p %F %C %R %D %P %S"


def defined(packet: str, *properties: tuple[str, ...]) -> list[str]:
    """As command line options."""
    return [word for each in properties for word in ("-D", packet, *each)]


def test_mosquitto_5_properties_come_through(shared_gateway: GatewayProcess) -> None:
    topic = fresh("mosquitto/properties")
    asked = defined(
        "connect",
        ("receive-maximum", "5"),
        ("maximum-packet-size", "1000"),
        ("request-problem-information", "1"),
        ("request-response-information", "1"),
        ("user-property", "kind", "test"),
    )
    asked += defined("subscribe", ("subscription-identifier", "9"), ("user-property", "a", "b"))
    asked += ["-t", topic, "-C", "1", "-q", "1", "-F", MOSQUITTO_SHOWS]
    process = subscribed(shared_gateway, "mqttv5", *asked)
    said = defined("publish", *MOSQUITTO_SAID, ("topic-alias", "3"))
    said += defined("disconnect", ("session-expiry-interval", "0"), ("user-property", "a", "b"))
    publish(shared_gateway, "mqttv5", "-t", topic, "-q", "1", "-m", "x", "-x", "5", *said)
    assert rest(process) == ["x 1 text/plain r c a:1 9"]


def test_the_properties_of_a_mosquitto_will_come_through(shared_gateway: GatewayProcess) -> None:
    topic = fresh("mosquitto/will")
    witness = subscribed(shared_gateway, "mqttv5", "-t", topic, "-C", "1", "-F", MOSQUITTO_SHOWS)
    will = ["--will-topic", topic, "--will-payload", "gone", "--will-qos", "1"]
    will += defined("will", *MOSQUITTO_SAID, ("will-delay-interval", "1"))
    lost = subscribed(shared_gateway, "mqttv5", "-t", "nothing", "-x", "60", *will)
    lost.kill()
    rest(lost)
    assert rest(witness) == ["gone 1 text/plain r c a:1 "]


@pytest.mark.parametrize("scheme", ["mqtt", "ws"])
@pytest.mark.parametrize("version", ["3", "4", "5"])
def test_mqtt_js_does_all_of_it(shared_gateway: GatewayProcess, scheme: str, version: str) -> None:
    port = shared_gateway.ports["mqtt" if scheme == "mqtt" else "mqtt_ws"]
    url = f"{scheme}://127.0.0.1:{port}" + ("/mqtt" if scheme == "ws" else "")
    ran = run_script("mqtt.js", url, fresh("js"), version)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    expected = [
        "qos q0/0 q1/1 q2/2",
        "retained kept true",
        "will gone",
        "session away1 away2",
        "shared 0123456789",
    ]
    if version == "5":
        expected += [
            "agreement true 1000 16777216 100 true",
            'properties true text/plain r c 9 {"a":["1","2"]} true',
            'will properties true text/plain r c {"a":["1","2"]}',
            "aliases one/topic two/topic two/topic one/topic",
            "refusal 135 true",
            "taken over 142 true",
        ]
    assert ran.stdout.splitlines() == [*expected, "closed"]
