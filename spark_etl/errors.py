"""What stops a job, said with the way out."""

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
