-- The last event of each server that was copied here, noted with its copy: a restore takes both back, and
-- who deletes rows of `sightline_events` leaves this as it is.
CREATE TABLE sightline_progress (
    node_id text PRIMARY KEY,
    seq bigint NOT NULL
);
INSERT INTO sightline_progress (node_id, seq) SELECT node_id, max(seq) FROM sightline_events GROUP BY node_id;
