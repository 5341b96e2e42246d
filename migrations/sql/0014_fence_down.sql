-- Back to 0013: nothing but the lock of its session tells a gateway that it owns the database.

DROP FUNCTION howdah.hold(bigint, timestamptz);
