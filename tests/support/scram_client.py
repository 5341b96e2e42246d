"""The client's side of SCRAM-SHA-256, for tests: written from RFC 5802 and RFC 7677 alone."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets


class ScramClient:
    """`first`, then `final` with what the server says, then `is_server_right` with its end."""

    def __init__(self, username: str, password: str, nonce: str | None = None) -> None:
        self._password = password
        self._nonce = nonce or secrets.token_hex(12)
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={self._nonce}"
        self._server_signature = b""

    def first(self) -> bytes:
        return b"n,," + self._bare.encode()

    def final(self, challenge: bytes) -> bytes:
        facts = dict(part.split("=", 1) for part in challenge.decode().split(","))
        assert facts["r"].startswith(self._nonce)
        assert len(facts["r"]) > len(self._nonce)
        salt, rounds = base64.b64decode(facts["s"]), int(facts["i"])
        salted = hashlib.pbkdf2_hmac("sha256", self._password.encode(), salt, rounds)
        start = f"c=biws,r={facts['r']}"
        said = f"{self._bare},{challenge.decode()},{start}".encode()
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        signature = hmac.digest(hashlib.sha256(client_key).digest(), said, "sha256")
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", "sha256")
        self._server_signature = hmac.digest(server_key, said, "sha256")
        return f"{start},p={base64.b64encode(proof).decode()}".encode()

    def is_server_right(self, final: bytes) -> bool:
        return final == b"v=" + base64.b64encode(self._server_signature)
