"""Logs a client in: by user name and password, by its certificate, or by an authentication method,
in as many AUTH packets as that takes, and again whenever the client likes.

Bytes are carried between packets and the core's logins; which packet may come when is judged here
only as far as AUTH goes. No session is known here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocols.mqtt.wire.packets import Auth, Connect
from protocols.mqtt.wire.property_set import PropertySet
from protocols.mqtt.wire.reasons import MqttError, ReasonCode, violation
from queue_core.access.auth import Credentials, Identity, NotChecked, Peer
from queue_core.access.login import Answer, Challenge, Login, Proven
from queue_core.access.mechanisms import EXTERNAL
from queue_core.errors import AccessRefused, VhostNotFound

if TYPE_CHECKING:
    from protocols.mqtt.context import Context


class LoginRefused(MqttError):
    """A login that was checked and failed, which the log has from whoever checked it."""


def _refusal(reason: ReasonCode, error: AccessRefused) -> MqttError:
    kind = MqttError if isinstance(error, NotChecked) else LoginRefused
    return kind(reason, str(error))


class ByPassword:
    """Logs in with what CONNECT says, or with the certificate that the listener has verified, in
    one step."""

    def __init__(self, context: Context, connect: Connect, client_id: str, peer: Peer) -> None:
        self._context = context
        self._connect = connect
        self._client_id = client_id
        self._peer = peer

    async def authenticate(self, username: str | None) -> Proven:
        """Returns who the client is. `username` is CONNECT's without the virtual host. Raises
        MqttError."""
        auth, peer, connect = self._context.services.auth, self._peer, self._connect
        credentials = Credentials.given(username, connect.password, self._client_id)
        # A certificate that names nobody is refused: its owner is not what CONNECT says, or nobody.
        if self._context.settings.certificate_login and peer.has_certificate:
            credentials = Credentials(EXTERNAL, client_id=self._client_id)
        try:
            return Proven(await auth.authenticate(credentials, peer))
        except AccessRefused as error:
            has_name = bool(connect.username)
            reason = ReasonCode.BAD_USER_NAME_OR_PASSWORD if has_name else ReasonCode.NOT_AUTHORIZED
            raise _refusal(reason, error) from error


class ByMethod:
    """Logs in by the method that CONNECT names, for as long as the connection lives."""

    def __init__(self, context: Context, method: str, client_id: str, peer: Peer) -> None:
        self._auth = context.services.auth
        self.method = method
        self._client_id = client_id
        self._peer = peer
        self._login: Login | None = None  # a login under way; None: there is none

    async def begin(self, data: bytes | None) -> Answer:
        """Begins with the data of CONNECT, or of an AUTH that begins again. Raises MqttError."""
        if self.method not in self._auth.mechanisms(self._peer):  # [MQTT-4.12.0-1]
            raise MqttError(
                ReasonCode.BAD_AUTHENTICATION_METHOD,
                f"authentication method '{self.method[:40]}' is not supported here",
            )
        login = self._auth.begin(self.method, self._peer, self._client_id)
        return await self._step(login, data)

    async def go_on(self, packet: Auth) -> Answer:
        """Takes the client's answer to a challenge. Raises MqttError."""
        self._check_method(packet, ReasonCode.BAD_AUTHENTICATION_METHOD)
        if packet.reason != ReasonCode.CONTINUE_AUTHENTICATION or self._login is None:
            raise violation("AUTH that answers nothing")  # [MQTT-4.12.0-3]
        return await self._step(self._login, packet.properties.authentication_data)

    async def again(self, packet: Auth, known: Identity) -> Auth:
        """Takes one packet of a connected client's re-authentication, and returns our answer to it
        [MQTT-4.12.1-1]. Raises MqttError."""
        # A DISCONNECT has no code for another method (table 3-10), a CONNACK has.
        self._check_method(packet, ReasonCode.PROTOCOL_ERROR)
        if packet.reason != ReasonCode.RE_AUTHENTICATE:
            answer = await self.go_on(packet)
        elif self._login is not None:
            raise violation("AUTH that begins again before the last one is over")
        else:
            answer = await self.begin(packet.properties.authentication_data)
        if isinstance(answer, Challenge):
            return self.challenge(answer)
        if not answer.identity.is_same_account(known):
            raise MqttError(ReasonCode.NOT_AUTHORIZED, "AUTH as another user than CONNECT's")
        return Auth(ReasonCode.SUCCESS, self._properties(answer.data))

    def challenge(self, challenge: Challenge) -> Auth:
        """Returns the AUTH that carries a challenge [MQTT-4.12.0-2], with the method of CONNECT
        [MQTT-4.12.0-5]."""
        return Auth(ReasonCode.CONTINUE_AUTHENTICATION, self._properties(challenge.data))

    def _properties(self, data: bytes) -> PropertySet:
        return PropertySet(authentication_method=self.method, authentication_data=data or None)

    def _check_method(self, packet: Auth, otherwise: ReasonCode) -> None:
        method = packet.properties.authentication_method
        if method is None:
            raise violation("AUTH without an authentication method")
        if method != self.method:  # [MQTT-4.12.0-5], [MQTT-4.12.1-1]
            raise MqttError(otherwise, "AUTH with another method than CONNECT's")

    async def _step(self, login: Login, data: bytes | None) -> Answer:
        self._login = None
        try:
            answer = await login.step(data or b"")
        except AccessRefused as error:
            raise _refusal(ReasonCode.NOT_AUTHORIZED, error) from error
        if isinstance(answer, Challenge):
            self._login = login
        return answer


async def place_of(context: Context, username: str | None) -> tuple[str, str | None]:
    """Splits a user name into the virtual host that it speaks of and the name without it:
    `vhost:user`, up to the last colon, where there is such a virtual host. Every other name is a
    user's of the default one."""
    name, colon, user = (username or "").rpartition(":")
    if colon:
        try:
            await context.services.vhost(name)
        except VhostNotFound:
            pass  # a user may have a colon in its name
        else:
            return name, user
    return context.settings.vhost, username
