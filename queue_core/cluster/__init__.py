"""Several gateways on one database: who is a member, who is dead, and who may hand out messages."""
