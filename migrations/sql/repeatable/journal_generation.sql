-- The journal's partitions of the generations in use, those that are not there yet. Comes last: a partition
-- takes over what is granted on its table.

SELECT howdah.attach_generation(g.generation) FROM (SELECT DISTINCT s.generation FROM howdah.shard s) g;
