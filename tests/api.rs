//! The HTTP API of a real server process: statuses, limits, ownership, media, crashes.
#![allow(missing_docs)]

mod support;

#[path = "api/abuse.rs"]
mod abuse;
#[path = "api/activity.rs"]
mod activity;
#[path = "api/analyses.rs"]
mod analyses;
#[path = "api/analyze.rs"]
mod analyze;
#[path = "api/arrow.rs"]
mod arrow;
#[path = "api/assistant.rs"]
mod assistant;
#[path = "api/auth.rs"]
mod auth;
#[path = "api/bodies.rs"]
mod bodies;
#[path = "api/bombs.rs"]
mod bombs;
#[path = "api/camera.rs"]
mod camera;
#[path = "api/charges.rs"]
mod charges;
#[path = "api/clip.rs"]
mod clip;
#[path = "api/console.rs"]
mod console;
#[path = "api/control_characters.rs"]
mod control_characters;
#[path = "api/damage.rs"]
mod damage;
#[path = "api/database.rs"]
mod database;
#[path = "api/doctor.rs"]
mod doctor;
#[path = "api/edges.rs"]
mod edges;
#[path = "api/export.rs"]
mod export;
#[path = "api/failing_models.rs"]
mod failing_models;
#[path = "api/fair.rs"]
mod fair;
#[path = "api/feedback.rs"]
mod feedback;
#[path = "api/files.rs"]
mod files;
#[path = "api/finish.rs"]
mod finish;
#[path = "api/forgery.rs"]
mod forgery;
#[path = "api/gates.rs"]
mod gates;
#[path = "api/goldens.rs"]
mod goldens;
#[path = "api/headers.rs"]
mod headers;
#[path = "api/idempotency.rs"]
mod idempotency;
#[path = "api/infer.rs"]
mod infer;
#[path = "api/infer_breaker.rs"]
mod infer_breaker;
#[path = "api/infer_days.rs"]
mod infer_days;
#[path = "api/infer_keys.rs"]
mod infer_keys;
#[path = "api/infer_limits.rs"]
mod infer_limits;
#[path = "api/infer_models.rs"]
mod infer_models;
#[path = "api/infer_waits.rs"]
mod infer_waits;
#[path = "api/ingest.rs"]
mod ingest;
#[path = "api/interactions.rs"]
mod interactions;
#[path = "api/jobs.rs"]
mod jobs;
#[path = "api/json_suite.rs"]
mod json_suite;
#[path = "api/keyless.rs"]
mod keyless;
#[path = "api/keys.rs"]
mod keys;
#[path = "api/labels.rs"]
mod labels;
#[path = "api/ledger.rs"]
mod ledger;
#[path = "api/lifecycle.rs"]
mod lifecycle;
#[path = "api/limits.rs"]
mod limits;
#[path = "api/live.rs"]
mod live;
#[path = "api/live_shares.rs"]
mod live_shares;
#[path = "api/metadata.rs"]
mod metadata;
#[path = "api/metrics.rs"]
mod metrics;
#[path = "api/mirror.rs"]
mod mirror;
#[path = "api/mirror_all.rs"]
mod mirror_all;
#[path = "api/model_server.rs"]
mod model_server;
#[path = "api/models.rs"]
mod models;
#[path = "api/mutants.rs"]
mod mutants;
#[path = "api/object_store.rs"]
mod object_store;
#[path = "api/orders.rs"]
mod orders;
#[path = "api/origins.rs"]
mod origins;
#[path = "api/paging.rs"]
mod paging;
#[path = "api/parquet.rs"]
mod parquet;
#[path = "api/proxy.rs"]
mod proxy;
#[path = "api/reason.rs"]
mod reason;
#[path = "api/reason_backends.rs"]
mod reason_backends;
#[path = "api/reason_ends.rs"]
mod reason_ends;
#[path = "api/reason_fields.rs"]
mod reason_fields;
#[path = "api/reason_novelty.rs"]
mod reason_novelty;
#[path = "api/reason_stills.rs"]
mod reason_stills;
#[path = "api/recordings.rs"]
mod recordings;
#[path = "api/recordings_killed.rs"]
mod recordings_killed;
#[path = "api/remote.rs"]
mod remote;
#[path = "api/remote_ends.rs"]
mod remote_ends;
#[path = "api/remote_hls.rs"]
mod remote_hls;
#[path = "api/remote_live.rs"]
mod remote_live;
#[path = "api/remote_playlists.rs"]
mod remote_playlists;
#[path = "api/remote_rtsp.rs"]
mod remote_rtsp;
#[path = "api/replay.rs"]
mod replay;
#[path = "api/retention.rs"]
mod retention;
#[path = "api/routes.rs"]
mod routes;
#[path = "api/sandbox.rs"]
mod sandbox;
#[path = "api/schemathesis.rs"]
mod schemathesis;
#[path = "api/search.rs"]
mod search;
#[path = "api/search_descriptions.rs"]
mod search_descriptions;
#[path = "api/shutdown.rs"]
mod shutdown;
#[path = "api/signals.rs"]
mod signals;
#[path = "api/slow.rs"]
mod slow;
#[path = "api/small_stills.rs"]
mod small_stills;
#[path = "api/smuggling.rs"]
mod smuggling;
#[path = "api/source.rs"]
mod source;
#[path = "api/stats.rs"]
mod stats;
#[path = "api/stock_models.rs"]
mod stock_models;
#[path = "api/stream.rs"]
mod stream;
#[path = "api/summaries.rs"]
mod summaries;
#[path = "api/thresholds.rs"]
mod thresholds;
#[path = "api/tickets.rs"]
mod tickets;
#[path = "api/traces.rs"]
mod traces;
#[path = "api/upload_memory.rs"]
mod upload_memory;
#[path = "api/uploads.rs"]
mod uploads;
#[path = "api/wall_starts.rs"]
mod wall_starts;
#[path = "api/webhook_failures.rs"]
mod webhook_failures;
#[path = "api/webhooks.rs"]
mod webhooks;
#[path = "api/webhooks_of_all.rs"]
mod webhooks_of_all;
#[path = "api/whip.rs"]
mod whip;
#[path = "api/whip_records.rs"]
mod whip_records;
#[path = "api/whole.rs"]
mod whole;
#[path = "api/zones.rs"]
mod zones;
