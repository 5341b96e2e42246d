-- What a fresh schema starts with.

-- Who owns this database (nobody yet), and the virtual host that every client knows.
INSERT INTO howdah.gateway (id, epoch, generation) VALUES (1, 0, 1);
INSERT INTO howdah.vhost (name) VALUES ('/');

-- Makes the salts of users who do not exist: the same whenever one asks, and after a restart.
INSERT INTO howdah.secret (name, value)
VALUES ('mock salt', sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())));

-- Opens the functions that the views call; see repeatable/view_functions.sql.
INSERT INTO howdah.view_key (value) VALUES (gen_random_uuid());
