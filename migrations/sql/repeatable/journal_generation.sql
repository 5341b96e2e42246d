-- The journal's partitions of the generation in use, those that are not there yet. Comes last: a partition
-- takes over what is granted on its table.

SELECT howdah.open_generation(g.generation) FROM howdah.gateway g;
