CREATE TABLE sightline_events (
    -- The server that wrote the event; its seqs are its own.
    node_id text NOT NULL,
    seq bigint NOT NULL,
    run_id text NOT NULL,
    kind text NOT NULL,
    -- Wall time of the append, epoch milliseconds, as in the event's envelope.
    pts_ms bigint NOT NULL,
    -- Not jsonb, which refuses the \u0000 that a description may hold.
    payload json NOT NULL,
    mirrored_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (node_id, seq)
);
CREATE INDEX sightline_events_by_run ON sightline_events (run_id, seq);

-- Tells this database from another one: a server that finds a new one copies everything to it.
CREATE TABLE sightline_database (
    id text PRIMARY KEY
);
INSERT INTO sightline_database (id) VALUES (gen_random_uuid()::text);
