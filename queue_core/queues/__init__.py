"""Queues: what each kind does with what arrives, expires, fails or does not fit."""
