-- Events of `sightline_events` that are not there: this database refused them again and again, or
-- the log of their server cannot read them.
CREATE TABLE sightline_skipped (
    node_id text NOT NULL,
    seq bigint NOT NULL,
    run_id text NOT NULL,
    kind text NOT NULL,
    -- What the last attempt came to.
    reason text NOT NULL,
    skipped_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (node_id, seq)
);
