"""A wire between a client and the gateway that a test may cut, or make deaf to answers."""

from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

CHUNK = 65_536
SECONDS = 90.0


class Relay:
    """Listens on a port of its own, and passes everything on to another."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._threads: list[threading.Thread] = []
        self._is_silent = False
        self._word = b""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> Self:
        self._run(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(SECONDS)

    def cut(self) -> None:
        """All connections end, without a word of the protocol; new ones may come, and are heard."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for side in pair:
                with suppress(OSError):
                    side.shutdown(socket.SHUT_RDWR)
        self._is_silent, self._word = False, b""

    def silence_when(self, said: bytes) -> None:
        """From the piece on in which the gateway says this, nothing of it arrives, until the next
        cut."""
        self._word = said

    def _run(self, work: object, *arguments: object) -> None:
        assert callable(work)
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            gateway = socket.create_connection(("127.0.0.1", self._target))
            with self._lock:
                self._pairs.append((client, gateway))
            self._run(self._pass_on, client, gateway, False)
            self._run(self._pass_on, gateway, client, True)

    def _pass_on(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        with suppress(OSError):
            while data := source.recv(CHUNK):
                if is_answer and self._word and self._word in data:
                    self._is_silent = True
                if not (is_answer and self._is_silent):
                    target.sendall(data)
        for side in (source, target):
            with suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
        source.close()


def run_over(relay: Relay, command: Sequence[str], folder: Path | None = None) -> list[str]:
    """Runs a client whose connections go over the relay, which is cut when the client asks for it
    by a line `?cut`. All other lines that it printed."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
    )
    timer = threading.Timer(SECONDS, process.kill)
    timer.start()
    lines = []
    try:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stderr is not None
        for line in process.stdout:
            if line == "?cut\n":
                relay.cut()
                process.stdin.write("\n")
                process.stdin.flush()
            else:
                lines.append(line.rstrip("\n"))
        errors = process.stderr.read()
        assert process.wait(SECONDS) == 0, errors
    finally:
        timer.cancel()
        process.kill()
        process.communicate()
    return lines
