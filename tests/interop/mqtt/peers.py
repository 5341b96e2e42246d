"""One client of each make for a whole run."""

from __future__ import annotations

from tests.interop.mqtt.plans import Peer


class Peers:
    """Made when they are first asked for: who runs one client needs no other."""

    def __init__(self) -> None:
        self._made: dict[str, Peer] = {}

    def of(self, client: str) -> Peer:
        if client not in self._made:
            self._made[client] = _peer(client)
        return self._made[client]

    def close(self) -> None:
        for peer in self._made.values():
            peer.close()


def _peer(client: str) -> Peer:
    if client == "gmqtt":
        from tests.interop.mqtt.gmqtt_peer import GmqttPeer

        return GmqttPeer()
    if client == "paho":
        from tests.interop.mqtt.paho_peer import PahoPeer

        return PahoPeer()
    if client == "mosquitto":
        from tests.interop.mqtt.mosquitto_peer import MosquittoPeer

        return MosquittoPeer()
    from tests.interop.mqtt.mqttjs_peer import MqttJsPeer

    return MqttJsPeer()
