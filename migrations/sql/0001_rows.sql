-- What a fresh schema starts with.

-- Who owns this database (nobody yet), and the virtual host that every client knows.
INSERT INTO howdah.gateway (id, epoch, generation) VALUES (1, 0, 1);
INSERT INTO howdah.vhost (name) VALUES ('/');
SELECT howdah.open_generation(1);
