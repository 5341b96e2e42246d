"""SCRAM-SHA-256 (RFC 5802, RFC 7677): verifiers, and the server's side of the conversation.

A verifier lets a server check a proof without knowing the password, and shows the client that the
server knew it. Pure: text in, text out. Who has which verifier, and what becomes of whoever has
none, is `accounts`' business.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
import stringprep
import unicodedata
from dataclasses import dataclass
from typing import Final, Self

from queue_core.access.mechanisms import SCRAM_SHA_256
from queue_core.errors import AccessRefused

PREFIX: Final = SCRAM_SHA_256 + "$"
# RFC 7677 asks for 4,096 at least. The client pays, once for each login: 32,768 are about 10 ms of
# a desktop's core. Some client libraries refuse more than 65,536.
ITERATIONS: Final = 32_768
SALT_BYTES: Final = 16
NONCE_BYTES: Final = 18
KEY_BYTES: Final = 32
MAX_STEP_BYTES: Final = 4096  # of what a client says in one step

_VERIFIER: Final = re.compile(
    r"SCRAM-SHA-256\$(?P<iterations>[0-9]{1,9}):(?P<salt>[^$:]+)\$(?P<stored>[^$:]+):(?P<server>[^$:]+)"
)
# gs2-header: no channel binding (n), or none that the client believes us to have (y).
_FIRST: Final = re.compile(r"(?P<header>[ny],(?P<acts_for>a=[^,]*)?,)(?P<bare>.+)", re.DOTALL)
_BARE: Final = re.compile(r"n=(?P<name>[^,]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(,[a-zA-Z]=[^,]+)*")
_FINAL: Final = re.compile(
    r"(?P<start>c=(?P<binding>[^,]+),r=(?P<nonce>[^,]+)(,[a-ln-zA-Z]=[^,]+)*),p=(?P<proof>[^,]+)"
)


@dataclass(frozen=True, slots=True)
class Verifier:
    """Holds what is kept of a password, in PostgreSQL's own notation."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    @classmethod
    def of(cls, password: str, salt: bytes | None = None, iterations: int = ITERATIONS) -> Self:
        salt = secrets.token_bytes(SALT_BYTES) if salt is None else salt
        salted = hashlib.pbkdf2_hmac("sha256", prepared(password).encode(), salt, iterations)
        stored_key = hashlib.sha256(_mac(salted, b"Client Key")).digest()
        return cls(iterations, salt, stored_key, _mac(salted, b"Server Key"))

    @classmethod
    def parsed(cls, text: str) -> Self:
        """Raises ValueError for what `__str__` did not write."""
        found = _VERIFIER.fullmatch(text)
        if found is None:
            raise ValueError(f"a verifier is {PREFIX}iterations:salt$StoredKey:ServerKey")
        keys = [_decoded(found[name]) for name in ("salt", "stored", "server")]
        if int(found["iterations"]) < 1 or {len(key) for key in keys[1:]} != {KEY_BYTES}:
            raise ValueError(f"a verifier has iterations, and keys of {KEY_BYTES} bytes")
        return cls(int(found["iterations"]), *keys)

    @classmethod
    def nobodys(cls, key: bytes, name: str) -> Self:
        """Makes the verifier of a user who has none: the same salt each time the name is asked for,
        and no proof fits."""
        salt = _mac(key, b"salt " + name.encode())[:SALT_BYTES]
        keys = [secrets.token_bytes(KEY_BYTES) for _ in range(2)]
        return cls(ITERATIONS, salt, *keys)

    def __str__(self) -> str:
        keys = f"{_encoded(self.stored_key)}:{_encoded(self.server_key)}"
        return f"{PREFIX}{self.iterations}:{_encoded(self.salt)}${keys}"


@dataclass(frozen=True, slots=True)
class ClientFirst:
    """client-first-message: who it says it is."""

    header: str
    bare: str
    username: str
    nonce: str

    @classmethod
    def parsed(cls, data: bytes) -> Self:
        text = _text(data)
        if text.startswith("p="):
            raise AccessRefused(
                f"{SCRAM_SHA_256} has no channel binding here; begin the first message with 'n,,'"
            )
        found = _FIRST.fullmatch(text)
        bare = None if found is None else _BARE.fullmatch(found["bare"])
        if found is None or bare is None:
            raise AccessRefused(
                f"the first {SCRAM_SHA_256} message is malformed; send n,,n=user,r=nonce"
            )
        username = _name(bare["name"])
        acts_for = _name((found["acts_for"] or "").removeprefix("a="))
        if acts_for not in ("", username):
            raise AccessRefused(
                f"user '{username}' may not act for '{acts_for}'; leave the authorization identity "
                "out"
            )
        return cls(found["header"], found["bare"], username, bare["nonce"])


class ScramServer:
    """Holds one conversation, from the moment at which the client has said who it is."""

    def __init__(self, first: ClientFirst, verifier: Verifier, nonce: str | None = None) -> None:
        self._first = first
        self._verifier = verifier
        self._nonce = first.nonce + (nonce or _encoded(secrets.token_bytes(NONCE_BYTES)))
        salt = _encoded(verifier.salt)
        self.first_message = f"r={self._nonce},s={salt},i={verifier.iterations}"

    def final_message(self, data: bytes) -> str | None:
        """Our own proof, in answer to the client's; None: that one was wrong. Raises AccessRefused
        for what is none."""
        found = _FINAL.fullmatch(_text(data))
        if found is None:
            raise AccessRefused(
                f"the last {SCRAM_SHA_256} message is malformed; send c=...,r=...,p=..."
            )
        is_ours = hmac.compare_digest(found["nonce"].encode(), self._nonce.encode())
        is_bound = found["binding"] == _encoded(self._first.header.encode())
        try:
            proof = _decoded(found["proof"])
        except ValueError:
            proof = b""
        verifier = self._verifier
        said = f"{self._first.bare},{self.first_message},{found['start']}".encode()
        signature = _mac(verifier.stored_key, said)
        if len(proof) != len(signature) or not is_ours or not is_bound:
            return None
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.sha256(client_key).digest(), verifier.stored_key):
            return None
        return "v=" + _encoded(_mac(verifier.server_key, said))


def prepared(text: str) -> str:
    """SASLprep (RFC 4013): one spelling for what looks the same. What it forbids stays as it is, as
    clients do that do not prepare at all."""
    if text.isascii():
        return text
    kept = (char for char in text if not stringprep.in_table_b1(char))
    spaced = "".join(" " if stringprep.in_table_c12(char) else char for char in kept)
    found = unicodedata.ucd_3_2_0.normalize("NFKC", spaced)
    is_forbidden = any(forbids(char) for char in found for forbids in _FORBIDDEN)
    return text if not found or is_forbidden or _mixes_directions(found) else found


_FORBIDDEN: Final = (
    stringprep.in_table_a1,
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


def _mixes_directions(text: str) -> bool:
    """RFC 3454, section 6."""
    from_right = [stringprep.in_table_d1(char) for char in text]
    if not any(from_right):
        return False
    has_left = any(stringprep.in_table_d2(char) for char in text)
    return has_left or not (from_right[0] and from_right[-1])


def _name(said: str) -> str:
    """=2C is a comma and =3D an equals sign; no other = may be there."""
    if re.search(r"=(?!2C|3D)", said):
        raise AccessRefused("a user name in SCRAM says =2C for a comma and =3D for an equals sign")
    return said.replace("=2C", ",").replace("=3D", "=")


def _text(data: bytes) -> str:
    if len(data) > MAX_STEP_BYTES:
        raise AccessRefused(f"a {SCRAM_SHA_256} message has {MAX_STEP_BYTES} bytes at most")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise AccessRefused(f"a {SCRAM_SHA_256} message is UTF-8; this one is not") from None


def _mac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("not base64") from error
