"""Password hashes of RabbitMQ: read from its definitions, kept as text, checked, and written back.

RabbitMQ keeps base64 of a salt of four bytes and a digest of salt and password. Howdah keeps the
same text behind the algorithm's name, `rabbit_sha256$...`, until the first good login replaces it
(see `password_renewal`). Such a digest is cheap to guess from a stolen table, which is why it is
replaced.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from typing import Final

from queue_core.errors import InvalidArgument

SALT_BYTES: Final = 4
MD5: Final = "rabbit_password_hashing_md5"  # of users from before RabbitMQ 3.6 as well
SHA256: Final = "rabbit_password_hashing_sha256"
SHA512: Final = "rabbit_password_hashing_sha512"
ALGORITHMS: Final = {MD5: "md5", SHA256: "sha256", SHA512: "sha512"}
PREFIX: Final = "rabbit_"
_BY_PREFIX: Final = {f"{PREFIX}{digest}": module for module, digest in ALGORITHMS.items()}


def kept_hash(password_hash: str, algorithm: str | None) -> str | None:
    """Converts a hash of RabbitMQ's definitions to what the table of users keeps; None for the
    empty hash, with which nobody logs in. A user without an algorithm has MD5, as RabbitMQ reads
    it. Raises InvalidArgument."""
    digest = ALGORITHMS.get(algorithm or MD5)
    if digest is None:
        raise InvalidArgument(
            f"hashing_algorithm '{algorithm}' is not known here; use {', '.join(ALGORITHMS)}"
        )
    if not password_hash:
        return None
    wanted = SALT_BYTES + hashlib.new(digest, usedforsecurity=False).digest_size
    try:
        found = len(base64.b64decode(password_hash, validate=True))
    except (binascii.Error, ValueError):
        raise InvalidArgument("password_hash is no base64") from None
    if found != wanted:
        raise InvalidArgument(
            f"password_hash has {found} bytes, and one of {algorithm or MD5} has {wanted}"
        )
    return f"{PREFIX}{digest}${password_hash}"


def is_from_rabbitmq(kept: str) -> bool:
    """Tells whether a kept hash is one that RabbitMQ computed."""
    return kept.partition("$")[0] in _BY_PREFIX


def in_rabbitmqs_words(kept: str) -> tuple[str, str]:
    """Returns the hash and its algorithm as RabbitMQ's definitions have them."""
    prefix, _, password_hash = kept.partition("$")
    return password_hash, _BY_PREFIX[prefix]


def rabbitmq_algorithm(kept: str) -> str:
    """Names the algorithm of a kept hash of RabbitMQ."""
    return in_rabbitmqs_words(kept)[1]


def rabbitmq_hash(password: bytes, algorithm: str = SHA256, salt: bytes | None = None) -> str:
    """Hashes a password as RabbitMQ does."""
    salt = secrets.token_bytes(SALT_BYTES) if salt is None else salt
    return base64.b64encode(salt + _digest(ALGORITHMS[algorithm], salt, password)).decode()


def is_password_of(kept: str, password: bytes) -> bool:
    """Tells whether a kept hash of RabbitMQ belongs to a password. The empty password belongs to
    none, as RabbitMQ refuses it. Takes microseconds."""
    prefix, _, password_hash = kept.partition("$")
    try:
        bare = base64.b64decode(password_hash, validate=True)
    except (binascii.Error, ValueError):  # written by hand
        return False
    salt, digest = bare[:SALT_BYTES], bare[SALT_BYTES:]
    expected = _digest(prefix.removeprefix(PREFIX), salt, password)
    return bool(password) and hmac.compare_digest(digest, expected)


def _digest(name: str, salt: bytes, password: bytes) -> bytes:
    return hashlib.new(name, salt + password, usedforsecurity=False).digest()
