CREATE TABLE sightline_feedback (
    -- What pages go by: newest first.
    position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    feedback_id text NOT NULL UNIQUE,
    run_id text NOT NULL,
    principal text NOT NULL,
    rating smallint NOT NULL,
    category text NOT NULL,
    feedback text,
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX sightline_feedback_by_principal ON sightline_feedback (principal, position);
