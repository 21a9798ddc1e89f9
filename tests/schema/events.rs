//! One event of every kind, written by a real log, against the schema of its kind.

use std::collections::BTreeSet;

use media::{
    AnalysisId, BlobHash, CellBox, EventType, FrameRate, GateConfig, JobId, Marker, MarkerId,
    MarkerOrigin, MarkerStatus, RequestId, RunId, Score, Seq, SessionId, Signal, StreamId, Zone,
    Zones,
};
use serde_json::{Value, json};
use timeline::{
    ActivityEpisode, AnalysisGenerated, Event, EventKind, FindingKind, FindingPayload,
    FramesDecoded, InferenceCompleted, IngestReceived, IngestStarted, JsonText, KeyframeStored,
    NewEvent, Pass, RequestMarkerPayload, RunCompleted, RunCreated, RunDeleted, RunExpired,
    RunFailed, RunLabelled, SamplingPolicy, SemanticChunkGenerated, SemanticChunkInferred,
    SemanticFallbackActivated, SemanticOutcome, SessionRunCreated, Signals, SourceReconnected,
    Timeline, TimelineOptions, TokenBudgetLow, TokenCounts,
};

use crate::schema::{assert_valid, component};

const RUN: RunId = RunId::from_bytes([7; 16]);
const REQUEST: RequestId = RequestId::from_bytes([1; 8]);
const SESSION: SessionId = SessionId::from_bytes([2; 16]);

fn stream() -> StreamId {
    "main".parse().expect("a label")
}

fn text(text: &str) -> String {
    text.to_owned()
}

/// Events of runs, ingests and analyses as of today.
fn of_runs() -> Vec<Event> {
    let signal = Signal {
        frame_index: 0,
        source_frame_index: Some(3),
        pts_ms: -40,
        perceptual_hash: 0xff,
        luma_mean: Score::ONE,
        flicker_score: Score::ONE,
        ghosting_score: Score::ONE,
        noise_variance_score: Score::ONE,
        scene_score: None,
        activity: None,
    };
    let polygon =
        vec![(Score::ZERO, Score::ZERO), (Score::ONE, Score::ZERO), (Score::ONE, Score::ONE)];
    let zone = Zone { name: text("door"), polygon };
    let marker = Marker {
        marker_id: MarkerId::from_bytes([3; 8]),
        run_id: RUN,
        stream_id: stream(),
        event_type: EventType::SceneCut,
        status: MarkerStatus::Finalized,
        start_frame: 1,
        end_frame: 2,
        start_pts_ms: 40,
        end_pts_ms: 80,
        confidence: Score::ONE,
        supersedes_marker_id: Some(MarkerId::from_bytes([4; 8])),
        analysis_id: Some(AnalysisId::from_bytes([8; 8])),
        origin: Some(MarkerOrigin::Gate),
        beside: true,
    };
    vec![
        Event::RunCreated(RunCreated {
            request_id: REQUEST,
            mode: text("balanced"),
            model: None,
            principal_key: text("alice"),
            tenant_id: None,
        }),
        Event::SessionRunCreated(SessionRunCreated {
            principal_key: text("alice"),
            session_id: SESSION,
            tenant_id: Some(text("acme")),
        }),
        Event::IngestReceived(IngestReceived {
            request_id: REQUEST,
            ingest: JsonText::parse(r#"{"source_uri":"a.mp4"}"#).expect("JSON"),
            decoded_frames: Some(1),
            source_uri: Some(text("a.mp4")),
            sampling_policy: Some(SamplingPolicy::Fixed),
            sample_fps: FrameRate::new(2, 1),
        }),
        Event::IngestStarted(IngestStarted {
            request_id: REQUEST,
            job_id: JobId::from_bytes([6; 16]),
            ingest: JsonText::parse(r#"{"source_uri":"a.mp4"}"#).expect("JSON"),
        }),
        Event::FramesDecoded(FramesDecoded {
            request_id: REQUEST,
            source_uri: text("a.mp4"),
            stream_id: stream(),
            sampling_policy: SamplingPolicy::SourceFpsAdaptive,
            source_fps: None,
            sample_fps: None,
            decoded_frames: 1,
            width: 16,
            height: 16,
            pixel_format: text("yuv420p"),
            decoder: Some(text("nvdec:h264+software:h264")),
            decoder_fallback: Some(text("the device was lost")),
            truncated: true,
            reason: Some(text("stopped")),
            gate: Some(GateConfig::default()),
            zones: Zones { zones: vec![zone], only: true },
            wall_start_ms: None,
            signals: Signals::Inline(vec![signal]),
        }),
        Event::MarkerEmitted(marker),
        Event::AnalysisGenerated(AnalysisGenerated {
            request_id: REQUEST,
            stream_id: stream(),
            frames: 1,
            window_size: 16,
            segment_ms: 250,
            sampling_policy: SamplingPolicy::Fixed,
            sample_fps: None,
            mode: None,
            model: text("m"),
            markers: 1,
            analysis_id: Some(AnalysisId::from_bytes([8; 8])),
            gate: Some(GateConfig::default()),
            zones: None,
        }),
        Event::KeyframeStored(KeyframeStored {
            frame_index: 0,
            pts_ms: 0,
            event_type: EventType::KeyframeKeep,
            reason: Some("scene_cut".to_owned()),
            description: String::new(),
            image_ref: text("/v1/x"),
            image_bytes: 9,
            image_sha256: BlobHash::from_bytes([5; 32]),
            truncated: false,
        }),
        Event::StopRequested(RequestMarkerPayload { request_id: REQUEST }),
        Event::KeepaliveRefreshed(RequestMarkerPayload { request_id: REQUEST }),
        Event::RunLabelled(RunLabelled { request_id: REQUEST, label: "yard".parse().ok() }),
        Event::RunCompleted(RunCompleted {
            request_id: None,
            stream_id: Some(stream()),
            frames: 1,
            markers: 1,
            index_name: None,
            semantic: Some(SemanticOutcome { requested: true, ..SemanticOutcome::default() }),
            reason: Some(text("idle")),
        }),
        Event::RunFailed(RunFailed { request_id: None, reason: text("shutdown") }),
        Event::RunExpired(RunExpired {}),
        Event::RunDeleted(RunDeleted {
            request_id: None,
            reclaim: JsonText::parse(r#"{"reason":"never connected"}"#),
        }),
    ]
}

fn of_models() -> Vec<Event> {
    let finding = FindingPayload {
        session_id: Some(SESSION),
        frame_index: 1,
        pts_ms: 40,
        end_pts_ms: Some(80),
        confidence: Score::ONE,
        description: text("a van"),
        summary: Some(text("a van")),
        event_type: Some(EventType::from_name("arrives")),
        object_label: Some(text("van")),
        semantic_error: Some(text("none")),
        provider: Some(text("vllm")),
        model: Some(text("qwen3-vl-8b")),
        total_tokens: Some(9),
        completion_tokens: Some(4),
        attempts: Some(2),
        truncated: true,
        inference_latency_ms: Some(12),
        prompt_version: Some(text("describe-1")),
        reused_from_seq: Some(Seq(7)),
        index_name: "yard".parse().ok(),
    };
    let kinds = [
        FindingKind::Vlm,
        FindingKind::VlmTiered,
        FindingKind::ClipVlm,
        FindingKind::ClipVlmTiered,
        FindingKind::StateTransition,
        FindingKind::LoopDetected,
    ];
    let episode = ActivityEpisode {
        request_id: REQUEST,
        stream_id: "main".parse().expect("an id"),
        session_id: None,
        start_frame: 12,
        end_frame: None,
        start_pts_ms: 480,
        end_pts_ms: None,
        peak_score: Score::ONE,
        peak_frame: 12,
        region: CellBox { left: 0, top: 1, right: 64, bottom: 40 },
        zones: vec![text("door")],
    };
    let mut events = vec![
        Event::SemanticChunkInferred(SemanticChunkInferred {
            request_id: REQUEST,
            stream_id: stream(),
            chunk_index: 0,
            provider: None,
            provider_fallback_used: false,
            semantic_fallback_used: true,
            semantic_error: Some(text("timeout")),
            event_type: EventType::from_name("van_turns"),
            object_label: None,
            summary: text("s"),
            description: text("d"),
            confidence: Some(Score::ONE),
            raw_output: text("r"),
            output: JsonText::parse(r#"{"a":1}"#),
            tokens: TokenCounts::default(),
            inference_latency_ms: 3,
            tier: Some(Pass::First),
            model: Some(text("qwen3-vl-8b")),
            attempts: Some(1),
            prompt_version: Some(text("describe-1")),
            start_pts_ms: Some(0),
            reused_from_seq: Some(Seq(7)),
            end_pts_ms: Some(960),
            index_name: "door".parse().ok(),
            truncated: false,
        }),
        Event::SemanticChunkGenerated(SemanticChunkGenerated {
            request_id: REQUEST,
            stream_id: stream(),
            chunk_index: 0,
            chunk_frames: 30,
            process_ms: 4,
            source_span_ms: 1000,
            lag_ms: -3,
            index_name: None,
            tokens: TokenCounts::default(),
            inference_latency_ms: 3,
        }),
        Event::SemanticFallbackActivated(SemanticFallbackActivated {
            request_id: REQUEST,
            stream_id: stream(),
            reason: text("no provider"),
        }),
        Event::InferenceCompleted(InferenceCompleted {
            request_id: REQUEST,
            provider: text("vllm"),
            model: text("m"),
            fallback_used: false,
            prompt_bytes: 1,
            output_bytes: 2,
            prompt_tokens: Some(1),
            completion_tokens: Some(2),
            thinking_tokens: Some(0),
            total_tokens: Some(3),
            inference_latency_ms: Some(4),
            tier: Some(Pass::First),
            attempts: Some(1),
        }),
        Event::TokenBudgetLow(TokenBudgetLow {
            request_id: REQUEST,
            principal_key: text("alice"),
            day: text("2026-01-31"),
            used_tokens: 90,
            limit_tokens: 100,
        }),
        Event::SourceReconnected(SourceReconnected {
            request_id: REQUEST,
            stream_id: "main".parse().expect("an id"),
            frame_index: 250,
            pts_ms: 14_000,
            gap_ms: 4000,
            attempts: 2,
            reason: text("lost"),
        }),
        Event::ActivityStarted(episode.clone()),
        Event::ActivityEnded(ActivityEpisode {
            session_id: Some(SessionId::from_bytes([3; 16])),
            end_frame: Some(30),
            end_pts_ms: Some(1200),
            ..episode
        }),
    ];
    events.extend(kinds.map(|kind| Event::Found(kind, finding.clone())));
    events
}

#[test]
fn an_event_of_every_kind_is_as_the_document_says() {
    let dir = tempfile::tempdir().expect("a directory");
    let (log, _) = Timeline::open(dir.path(), TimelineOptions::default()).expect("opens");
    let events = of_runs().into_iter().chain(of_models());
    log.append_wait(events.map(|event| NewEvent { run: RUN, event }).collect()).expect("appended");
    let (schema, mut kinds) = (component("Event"), BTreeSet::new());
    for stored in log.read(RUN, Seq(0), 100, None).expect("read") {
        let kind = stored.head.kind;
        let payload: Value = serde_json::from_str(&stored.payload).expect("JSON");
        let of = |payload: &Value| {
            let (seq, at) = (stored.head.seq.0, stored.head.at.epoch_ms);
            json!({"seq": seq, "pts_ms": at, "kind": kind.as_str(), "payload": payload})
        };
        assert_valid(&schema, &of(&payload));
        let mut more = payload.clone();
        more["a_later_field"] = json!([]);
        assert_valid(&schema, &of(&more));
        for (field, value) in payload.as_object().expect("an object") {
            let mut other = payload.clone();
            other[field] = if value.is_object() { json!(1) } else { json!({}) };
            assert!(!schema.is_valid(&of(&other)), "{}: {field} is an object", kind.as_str());
        }
        kinds.insert(kind.as_str());
    }
    assert_eq!(kinds, EventKind::ALL.iter().map(|kind| kind.as_str()).collect());
}

/// `text` with nothing behind the dash of an id, as the golden files have it.
fn without_digits(text: &str) -> String {
    let parts = text.split('-').enumerate().map(|(at, part)| {
        let digits = part.bytes().take_while(u8::is_ascii_hexdigit).count();
        if at > 0 && digits >= 16 { &part[digits..] } else { part }
    });
    parts.collect::<Vec<_>>().join("-")
}

/// The fields of `example` are those of `golden`, with its values but for what clocks and long arrays are.
fn is_golden(example: &Value, golden: &Value) -> bool {
    let [Value::Object(example), Value::Object(golden)] = [example, golden] else { return false };
    golden.len() <= example.len()
        && golden.iter().all(|(field, value)| {
            let is_hashed = value.as_str().is_some_and(|text| text.contains("sha256 "));
            let found = example.get(field).map(ToString::to_string).unwrap_or_default();
            let value = value.to_string();
            is_hashed || without_digits(&found) == value
        })
}

#[test]
fn the_catalogue_has_a_payload_of_every_kind_as_it_comes() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/");
    let read = |name| std::fs::read_to_string(format!("{root}{name}")).expect("there");
    let golden = read("fixtures/golden/sources.txt") + &read("fixtures/golden/reason.txt");
    let (page, schema, mut kinds) = (read("docs/EVENTS.md"), component("Event"), Vec::new());
    for part in page.split("\n### ").skip(1) {
        let (kind, rest) = part.split_once('\n').expect("a heading");
        let json = rest.split("```").nth(1).and_then(|fence| fence.strip_prefix("json\n"));
        let payload: Value = serde_json::from_str(json.unwrap_or_default()).expect(kind);
        let event =
            json!({"seq": 1, "pts_ms": 1_795_762_915_813_i64, "kind": kind, "payload": payload});
        assert_valid(&schema, &event);
        let lines = golden.lines().filter_map(|line| line.strip_prefix(kind)?.strip_prefix(' '));
        let lines: Vec<Value> = lines.filter_map(|line| serde_json::from_str(line).ok()).collect();
        let is_held = lines.is_empty() || lines.iter().any(|line| is_golden(&payload, line));
        assert!(is_held, "{kind} is none of the golden ones: {payload}");
        kinds.push(kind.to_owned());
    }
    let readme = read("README.md");
    let json = readme.split("```").find_map(|fence| fence.strip_prefix("json\n"));
    let event: Value = serde_json::from_str(json.unwrap_or_default()).expect("an event");
    assert_valid(&schema, &event);
    kinds.sort();
    let mut all: Vec<&str> = EventKind::ALL.iter().map(|kind| kind.as_str()).collect();
    all.sort();
    assert_eq!(kinds, all);
}
