"""The queue manager: knows no protocol and no socket."""
