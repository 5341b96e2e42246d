"""Certificates for tests only; see the README beside."""

from pathlib import Path

_HERE = Path(__file__).parent

AUTHORITY = _HERE / "ca.pem"
SERVER, SERVER_KEY = _HERE / "server.pem", _HERE / "server.key"
CLIENT, CLIENT_KEY = _HERE / "client.pem", _HERE / "client.key"
STRANGER, STRANGER_KEY = _HERE / "stranger.pem", _HERE / "stranger.key"
NAMED, NAMED_KEY = _HERE / "named.pem", _HERE / "named.key"
