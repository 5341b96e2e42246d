"""What stops a job, said with the way out."""

from __future__ import annotations


class EtlError(RuntimeError):
    """The job cannot be done; the text says why and what to do."""


class EtlSetupError(EtlError):
    """Something that Spark needs is missing; the text names the command that brings it."""
