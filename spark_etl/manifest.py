"""An export directory: batches of Parquet files, each made visible by one manifest.

Answers for the layout, for the order of steps that survives a kill at any point, and for telling
what is ours. It must not know Spark or PostgreSQL.

    <directory>/_howdah-export.json               says that the directory is ours
    <directory>/_manifest/<queue>-<id>/<first>.json   the batch that begins there
    <directory>/log=<queue>-<id>/batch=<first>-<last>-<run>/day=2026-01-31/*.parquet

A batch exists when its manifest does. The manifest gets its name by link(), which fails where one
is already: of two runs that write the same range only one can win. Data without a manifest is what
a killed run left; the next one takes it away.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from spark_etl.atomic_files import load, sync, write_new
from spark_etl.errors import EtlError
from spark_etl.queues import Queue
from spark_etl.ranges import Range

FORMAT: Final = 1
MARKER: Final = "_howdah-export.json"
_MANIFESTS: Final = "_manifest"
_BATCH: Final = re.compile(r"batch=[0-9]{20}-[0-9]{20}-[0-9a-f]{12}")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class File:
    path: str  # below the directory
    bytes: int


@dataclass(frozen=True, slots=True)
class Batch:
    """One exported batch, with the fields of its manifest."""

    vhost: str
    queue: str
    queue_id: int
    system: str  # identifier of the PostgreSQL cluster that the offsets belong to
    after: int
    upto: int
    messages: int
    missing: int  # offsets of the range that retention had taken, or the database lost
    written_at: str
    folder: str
    files: list[File]
    format: int = FORMAT

    @property
    def log(self) -> str:
        """The folder that the batch lies in, as its readers see it: log=<this>."""
        return self.files[0].path.split("/")[0].removeprefix("log=") if self.files else ""

    @property
    def range(self) -> Range:
        return Range(self.after, self.upto)


class ExportDirectory:
    """One export directory, for all queues that are exported there."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def prepare(self) -> None:
        """Makes the directory where it is missing; refuses one that holds other things."""
        marker = self.path / MARKER
        if marker.exists():
            found = load(marker).get("format")
            if found != FORMAT:
                raise EtlError(
                    f"{self.path} has format {found}, and this version writes {FORMAT}: "
                    "export to another directory"
                )
            return
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise EtlError(
                f"{self.path} is not empty and no export of ours: name another directory"
            )
        self.path.mkdir(parents=True, exist_ok=True)
        write_new(marker, {"format": FORMAT})

    def folder(self, queue: Queue) -> QueueFolder:
        name = _UNSAFE.sub("_", queue.name)[:80]
        return QueueFolder(self.path, f"{name}-{queue.id}")

    def batches(self, queue: str | None = None, vhost: str = "/") -> Iterator[Batch]:
        """Yields every visible batch; of one queue, or of all."""
        if not (self.path / MARKER).exists():
            raise EtlError(f"{self.path} is no export: there is no {MARKER} in it")
        for folder in sorted((self.path / _MANIFESTS).glob("*")):
            for batch in QueueFolder(self.path, folder.name).batches():
                if queue is None or (batch.queue, batch.vhost) == (queue, vhost):
                    yield batch


class QueueFolder:
    """The batches of one queue, in the order of their offsets."""

    def __init__(self, root: Path, log: str) -> None:
        self.root = root
        self.path = root / f"log={log}"
        self._manifests = root / _MANIFESTS / log

    def batches(self) -> list[Batch]:
        """Lists all visible batches; a chain with a hole in it is an error."""
        found: list[Batch] = []
        for path in sorted(self._manifests.glob("[0-9]*.json")):
            text = load(path)
            try:
                files = [File(**each) for each in text.pop("files")]
                batch = Batch(**text, files=files)
            except (KeyError, TypeError) as error:
                raise EtlError(f"{path} is not a manifest of ours: {error}") from error
            if found and found[-1].upto != batch.after:
                raise EtlError(
                    f"{path} begins after offset {batch.after}, but the batch before ends at "
                    f"{found[-1].upto}: restore the manifest that is missing, or export to a new "
                    "directory"
                )
            found.append(batch)
        return found

    def check(self, batches: list[Batch]) -> None:
        """Raises EtlError unless the files that manifests name are there, whole."""
        for batch in batches:
            for file in batch.files:
                path = self.root / file.path
                size = path.stat().st_size if path.exists() else None
                if size != file.bytes:
                    state = "is missing" if size is None else f"has {size} of {file.bytes} bytes"
                    raise EtlError(
                        f"{path} {state}: restore it from a backup, or export to a new directory; "
                        "nothing was changed"
                    )

    def remove_leftovers(self, batches: list[Batch]) -> list[str]:
        """Removes files that killed runs left behind; names that are not ours stay."""
        kept = {batch.folder for batch in batches}
        gone = []
        for path in sorted(self.path.glob("*")):
            if path.name not in kept and _BATCH.fullmatch(path.name):
                shutil.rmtree(path)
                gone.append(path.name)
        for path in self._manifests.glob("*.new"):
            path.unlink()
        return gone

    def batch_name(self, wanted: Range, run: str) -> str:
        return f"batch={wanted.after + 1:020d}-{wanted.upto:020d}-{run}"

    def data(self, name: str) -> Path:
        return self.path / name

    def files(self, name: str) -> list[Path]:
        return sorted(self.data(name).rglob("*.parquet"))

    def sync(self, name: str) -> list[File]:
        """Syncs all files of the batch to the disk, and lists them."""
        found = []
        for path in self.files(name):
            sync(path)
            found.append(File(str(path.relative_to(self.root)), path.stat().st_size))
        for folder in (*self.data(name).glob("day=*"), self.data(name), self.path, self.root):
            sync(folder)
        return found

    def publish(self, batch: Batch) -> None:
        """Makes the batch visible, in one step."""
        self._manifests.mkdir(parents=True, exist_ok=True)
        for folder in (self._manifests.parent, self.root):
            sync(folder)
        path = self._manifests / f"{batch.after + 1:020d}.json"
        try:
            write_new(path, asdict(batch))
        except FileExistsError as error:
            raise EtlError(
                f"{path} was written by another export meanwhile: run only one at a time; "
                "nothing was overwritten"
            ) from error
