"""Errors that stop a job, said with the way out."""

from __future__ import annotations


class EtlError(RuntimeError):
    """The job cannot be done; the text says why and what to do."""


class EtlSetupError(EtlError):
    """Something that Spark needs is missing; the text names the command that brings it."""


class InterruptedReadError(EtlError):
    """A standby ended a read that was in its way; another try may succeed."""

    def __init__(self, reason: str, advice: str) -> None:
        super().__init__(f"{reason}: {advice}")
        self.reason = reason


class SomeFailedError(EtlError):
    """Some of several queues or segments failed; the others are done."""

    def __init__(self, what: str, failed: dict[str, EtlError], total: int, done: str) -> None:
        reasons = "".join(f"\n  {name}: {error}" for name, error in failed.items())
        super().__init__(f"{len(failed)} of {total} {what} failed, {done}:{reasons}")
        self.failed = failed
