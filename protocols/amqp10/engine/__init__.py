"""The protocol engine: Proton's, and what it leaves out."""
