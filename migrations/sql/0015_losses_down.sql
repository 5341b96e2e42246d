-- Back to 0014: what was lost is not remembered, and a log ends where its partitions do.

DROP FUNCTION howdah.repair();
DROP FUNCTION howdah.mend_table(text, integer, text);
DROP FUNCTION howdah.find_gaps();
DROP FUNCTION howdah.torn_tables();
DROP TABLE howdah.log_end;
DROP TABLE howdah.loss;
