-- Every event of every server that mirrors them all: a partition a day (UTC), which the servers make. Who wants no more of a day
-- drops its partition.
CREATE TABLE sightline_log (
    node_id text NOT NULL,
    seq bigint NOT NULL,
    run_id text NOT NULL,
    kind text NOT NULL,
    appended_at timestamptz NOT NULL,
    -- Without the signals of frames.
    payload json NOT NULL,
    -- What a search looks through; null where there is no text.
    description text,
    PRIMARY KEY (node_id, seq, appended_at)
) PARTITION BY RANGE (appended_at);
CREATE INDEX sightline_log_by_run ON sightline_log (run_id, seq);

-- The last event of each server that is in `sightline_log`, noted with its copy.
CREATE TABLE sightline_log_progress (
    node_id text PRIMARY KEY,
    seq bigint NOT NULL
);

-- What the events of each run come to.
CREATE TABLE sightline_runs (
    node_id text NOT NULL,
    run_id text NOT NULL,
    principal text NOT NULL,
    label text NOT NULL,
    status text NOT NULL,
    created_at timestamptz NOT NULL,
    last_event_at timestamptz NOT NULL,
    PRIMARY KEY (node_id, run_id)
);
CREATE INDEX sightline_runs_by_principal ON sightline_runs (principal, created_at);

-- Without the extension a search reads every description.
DO $$ BEGIN
    CREATE EXTENSION IF NOT EXISTS pg_trgm;
    CREATE INDEX sightline_log_by_text ON sightline_log USING gin (description gin_trgm_ops);
EXCEPTION WHEN OTHERS THEN
    RAISE NOTICE 'searches are slow without pg_trgm: %', SQLERRM;
END $$;
