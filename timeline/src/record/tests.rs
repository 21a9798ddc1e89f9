//! JSON text of payloads, and its decoding to the same event. Long because every kind has its text here.

use std::borrow::Cow;

use media::{
    Activity, CellBox, EventType, FrameRate, GateConfig, JobId, Marker, MarkerOrigin, MarkerStatus,
    RequestId, Score, Seq, SessionId, Signal, Zone, Zones,
};

use super::*;
use crate::event::*;

const RUN: RunId = RunId::from_bytes([0xab; 16]);
const REQUEST: RequestId = RequestId::from_bytes([0x11; 8]);

/// Checks that the payload of `event` is `expected` and that the stored event decodes to `event`.
#[track_caller]
fn check(event: Event, expected: &str) {
    let draft = RecordBuilder::of(NewEvent { run: RUN, event: event.clone() }).expect("fits");
    let (seq, at) = (Seq(9), WallTime { epoch_ms: -5 });
    let mut bytes = Vec::new();
    draft.put(&mut bytes, seq, at);
    assert_eq!(bytes.len(), draft.record_bytes());
    let record = JournalRecord::parse(&bytes).expect("intact");
    assert_eq!(record.head, EventMeta { seq, at, run: RUN, kind: event.kind() });
    let payload = record.payload().expect("text");
    assert_eq!(payload.text, expected);
    assert_eq!(record.decode().expect("decodes"), event);
    let known: serde_json::Value = match payload.column {
        None => serde_json::from_str(payload.text).expect("valid JSON"),
        Some(_) => return,
    };
    assert!(known.is_object());
}

fn text(text: &str) -> String {
    text.to_owned()
}

fn tokens() -> TokenCounts {
    TokenCounts { prompt_tokens: 1, completion_tokens: 2, thinking_tokens: 3, total_tokens: 6 }
}

#[test]
fn run_lifecycle() {
    let created = RunCreated {
        request_id: REQUEST,
        mode: text("balanced"),
        model: None,
        principal_key: text("ops"),
        tenant_id: Some(text("acme \"north\"")),
    };
    check(
        Event::RunCreated(created),
        r#"{"request_id":"req-1111111111111111","mode":"balanced","model":null,"principal_key":"ops","tenant_id":"acme \"north\""}"#,
    );
    let session_id = "sess-000102030405060708090a0b0c0d0e0f".parse().expect("an id");
    for (tenant_id, told) in [(None, ""), (Some(text("acme")), r#","tenant_id":"acme""#)] {
        check(
            Event::SessionRunCreated(SessionRunCreated {
                principal_key: text("ops"),
                session_id,
                tenant_id,
            }),
            &format!(
                r#"{{"principal_key":"ops","session_id":"sess-000102030405060708090a0b0c0d0e0f","source":"whip"{told}}}"#
            ),
        );
    }
    let requested = RequestMarkerPayload { request_id: REQUEST };
    let request = r#"{"request_id":"req-1111111111111111"}"#;
    check(Event::StopRequested(requested.clone()), request);
    check(Event::KeepaliveRefreshed(requested), request);
    for (label, told) in [("gate 3".parse().ok(), r#""gate 3""#), (None, "null")] {
        check(
            Event::RunLabelled(RunLabelled { request_id: REQUEST, label }),
            &format!(r#"{{"request_id":"req-1111111111111111","label":{told}}}"#),
        );
    }
    check(Event::RunDeleted(RunDeleted { request_id: Some(REQUEST), reclaim: None }), request);
    let reclaim = JsonText::parse(r#"{"why": "never connected", "after_s":30}"#);
    check(
        Event::RunDeleted(RunDeleted { request_id: None, reclaim }),
        r#"{"reclaim":{"why": "never connected", "after_s":30}}"#,
    );
    check(
        Event::RunFailed(RunFailed { request_id: None, reason: text("shutdown") }),
        r#"{"reason":"shutdown"}"#,
    );
    check(Event::RunExpired(RunExpired {}), "{}");
    let completed = RunCompleted {
        request_id: Some(REQUEST),
        stream_id: "yard".parse().ok(),
        frames: 7,
        markers: 2,
        ..RunCompleted::default()
    };
    check(
        Event::RunCompleted(completed.clone()),
        r#"{"request_id":"req-1111111111111111","stream_id":"yard","frames":7,"markers":2,"index_name":null,"semantic":null}"#,
    );
    let semantic = SemanticOutcome {
        requested: true,
        chunks_asked: 3,
        chunks_failed: 1,
        error: Some(text("http 404")),
        fallback_used: true,
    };
    check(
        Event::RunCompleted(RunCompleted { semantic: Some(semantic), ..completed.clone() }),
        r#"{"request_id":"req-1111111111111111","stream_id":"yard","frames":7,"markers":2,"index_name":null,"semantic":{"requested":true,"chunks_asked":3,"chunks_failed":1,"error":"http 404","fallback_used":true}}"#,
    );
    check(
        Event::RunCompleted(RunCompleted {
            request_id: None,
            reason: Some(text("idle")),
            ..completed
        }),
        r#"{"request_id":null,"stream_id":"yard","frames":7,"markers":2,"index_name":null,"semantic":null,"reason":"idle"}"#,
    );
}

#[test]
fn ingest() {
    let body = r#"{"source_uri":"/a.mp4","max_frames":  9}"#;
    let mut received = IngestReceived {
        request_id: REQUEST,
        ingest: JsonText::parse(body).expect("JSON"),
        decoded_frames: None,
        source_uri: None,
        sampling_policy: None,
        sample_fps: None,
    };
    check(
        Event::IngestReceived(received.clone()),
        r#"{"request_id":"req-1111111111111111","ingest":{"source_uri":"/a.mp4","max_frames":  9}}"#,
    );
    received.decoded_frames = Some(9);
    received.source_uri = Some(text("/a.mp4"));
    received.sampling_policy = Some(SamplingPolicy::SourceFpsAdaptive);
    received.sample_fps = FrameRate::new(25, 2);
    check(
        Event::IngestReceived(received),
        r#"{"request_id":"req-1111111111111111","ingest":{"source_uri":"/a.mp4","max_frames":  9},"decoded_frames":9,"source_uri":"/a.mp4","sampling_policy":"source_fps_adaptive","sample_fps":12.5}"#,
    );
}

#[test]
fn an_accepted_source() {
    let started = IngestStarted {
        request_id: REQUEST,
        job_id: JobId::from_bytes([2; 16]),
        ingest: JsonText::parse(r#"{"source_uri":"/a.mp4"}"#).expect("JSON"),
    };
    check(
        Event::IngestStarted(started),
        r#"{"request_id":"req-1111111111111111","job_id":"job-02020202020202020202020202020202","ingest":{"source_uri":"/a.mp4"}}"#,
    );
}

fn frames(signals: Signals) -> FramesDecoded {
    FramesDecoded {
        request_id: REQUEST,
        source_uri: text("/a.mp4"),
        stream_id: "yard".parse().expect("a label"),
        sampling_policy: SamplingPolicy::Fixed,
        source_fps: FrameRate::new(30, 1),
        sample_fps: None,
        decoded_frames: signals.count(),
        width: 640,
        height: 360,
        pixel_format: text("yuv420p"),
        decoder: None,
        decoder_fallback: None,
        truncated: false,
        reason: None,
        gate: None,
        zones: Zones::default(),
        wall_start_ms: None,
        signals,
    }
}

#[test]
fn a_rate_that_an_earlier_version_wrote_is_readable() {
    let kept = frames(Signals::Inline(Vec::new()));
    let draft =
        RecordBuilder::of(NewEvent { run: RUN, event: Event::FramesDecoded(kept) }).expect("fits");
    let mut bytes = Vec::new();
    draft.put(&mut bytes, Seq(9), WallTime { epoch_ms: -5 });
    let record = JournalRecord::parse(&bytes).expect("intact");
    let odd = record.payload().expect("text").text.replace("30.0", "90000.0");
    assert!(odd.contains("90000.0"), "{odd}");
    let read = Event::parse(EventKind::FramesDecoded, &odd).expect("readable");
    let Event::FramesDecoded(read) = read else { panic!("another kind") };
    assert_eq!(read.source_fps, FrameRate::new(4000, 1));
}

#[test]
fn frames_with_signals_inline_and_in_a_column() {
    let signal = Signal {
        frame_index: 1,
        source_frame_index: Some(15),
        pts_ms: -40,
        perceptual_hash: 0xf0,
        luma_mean: Score::from_millionths(500_000),
        flicker_score: Score::ZERO,
        ghosting_score: Score::ONE,
        noise_variance_score: Score::from_millionths(1),
        scene_score: Some(Score::from_millionths(123_450)),
        activity: Some(Activity {
            score: Score::from_millionths(15_625),
            region: CellBox { left: 16, top: 10, right: 17, bottom: 40 },
            zones: 0b1000_0000_0000_0101,
        }),
    };
    let bare = Signal { source_frame_index: None, scene_score: None, activity: None, ..signal };
    let start = r#"{"request_id":"req-1111111111111111","source_uri":"/a.mp4","stream_id":"yard","sampling_policy":"fixed","source_fps":30.0,"sample_fps":null,"decoded_frames":2,"width":640,"height":360,"pixel_format":"yuv420p","#;
    let signals = r#""signals":[{"frame_index":1,"source_frame_index":15,"pts_ms":-40,"perceptual_hash":"00000000000000f0","luma_mean":0.5,"flicker_score":0.0,"ghosting_score":1.0,"noise_variance_score":0.000001,"scene_score":0.12345,"activity_score":0.015625,"activity_region":{"x":0.25,"y":0.25,"width":0.015625,"height":0.75},"activity_zones":[0,2,15]},{"frame_index":1,"pts_ms":-40,"perceptual_hash":"00000000000000f0","luma_mean":0.5,"flicker_score":0.0,"ghosting_score":1.0,"noise_variance_score":0.000001}]}"#;
    let decoded = frames(Signals::Inline(vec![signal, bare]));
    check(Event::FramesDecoded(decoded), &format!("{start}{signals}"));
    let column = Signals::Column { hash: BlobHash::from_bytes([3; 32]), count: 2 };
    let reason = Some(text("stopped"));
    let decoded = FramesDecoded { truncated: true, reason, ..frames(column.clone()) };
    let cut = "\"truncated\":true,\"reason\":\"stopped\",";
    check(Event::FramesDecoded(decoded), &format!("{start}{cut}\"signals\":"));
    let (decoder, decoder_fallback) = (Some(text("nvdec:h264+software:h264")), Some(text("lost")));
    let wall_start_ms = Some(Some(WallTime { epoch_ms: 1_700_000_000_123 }));
    let decoded = FramesDecoded { decoder, decoder_fallback, wall_start_ms, ..frames(column) };
    let named = "\"decoder\":\"nvdec:h264+software:h264\",\"decoder_fallback\":\"lost\",";
    check(
        Event::FramesDecoded(decoded),
        &format!("{start}{named}\"wall_start_ms\":1700000000123,\"signals\":"),
    );
}

#[test]
fn zones_of_a_recording() {
    let score = Score::from_millionths;
    let corners = [(0, 0), (500_000, 0), (500_000, 1_000_000)];
    let polygon = corners.into_iter().map(|(x, y)| (score(x), score(y))).collect();
    let door = Zone { name: text("door"), polygon };
    let zones = Zones { zones: vec![door], only: true };
    let decoded = FramesDecoded { zones, ..frames(Signals::Inline(Vec::new())) };
    let start = r#"{"request_id":"req-1111111111111111","source_uri":"/a.mp4","stream_id":"yard","sampling_policy":"fixed","source_fps":30.0,"sample_fps":null,"decoded_frames":0,"width":640,"height":360,"pixel_format":"yuv420p","#;
    let told = r#""zones":[{"name":"door","polygon":[[0.0,0.0],[0.5,0.0],[0.5,1.0]]}],"activity_zones_only":true,"signals":[]}"#;
    check(Event::FramesDecoded(decoded), &format!("{start}{told}"));
    // Older logs have only the names.
    let older = format!(r#"{start}"zones":["door","yard"],"signals":[]}}"#);
    let read = Event::parse(EventKind::FramesDecoded, &older).expect("readable");
    let Event::FramesDecoded(read) = read else { panic!("another kind") };
    assert_eq!(read.zones.names(), ["door", "yard"]);
    assert!(read.zones.zones.iter().all(|zone| zone.polygon.is_empty()) && !read.zones.only);
    let rows = [
        r#"["door",7]"#,
        r#"[{"name":"door"}]"#,
        r#"[{"name":"door","polygon":[[0,2]]}]"#,
        r#"[{"name":"door","polygon":[[0]]}]"#,
    ];
    for zones in rows {
        let odd = format!(r#"{start}"zones":{zones},"signals":[]}}"#);
        assert!(Event::parse(EventKind::FramesDecoded, &odd).is_err(), "{zones}");
    }
}

#[test]
fn analysis() {
    let mut marker = Marker {
        marker_id: "mk-0000000000000001".parse().expect("an id"),
        run_id: RUN,
        stream_id: "yard".parse().expect("a label"),
        event_type: EventType::SceneCut,
        status: MarkerStatus::Exact,
        start_frame: 3,
        end_frame: 4,
        start_pts_ms: 100,
        end_pts_ms: 133,
        confidence: Score::from_millionths(700_000),
        supersedes_marker_id: None,
        analysis_id: None,
        origin: None,
        beside: false,
    };
    let members = r#""run_id":"run-abababababababababababababababab","stream_id":"yard","event_type":"scene_cut","status":"exact","start_frame":3,"end_frame":4,"start_pts_ms":100,"end_pts_ms":133,"confidence":0.7"#;
    check(
        Event::MarkerEmitted(marker.clone()),
        &format!(r#"{{"marker_id":"mk-0000000000000001",{members},"supersedes_marker_id":null}}"#),
    );
    marker.supersedes_marker_id = Some(marker.marker_id);
    marker.analysis_id = Some("an-0000000000000002".parse().expect("an id"));
    (marker.origin, marker.beside) = (Some(MarkerOrigin::Gate), true);
    check(
        Event::MarkerEmitted(marker.clone()),
        &format!(
            r#"{{"marker_id":"mk-0000000000000001",{members},"supersedes_marker_id":"mk-0000000000000001","analysis_id":"an-0000000000000002","origin":"gate","beside":true}}"#
        ),
    );
    let mut generated = AnalysisGenerated {
        request_id: REQUEST,
        stream_id: "yard".parse().expect("a label"),
        frames: 10,
        window_size: 16,
        segment_ms: 250,
        sampling_policy: SamplingPolicy::Fixed,
        sample_fps: FrameRate::new(2, 1),
        mode: None,
        model: text("qwen3-vl-8b"),
        markers: 3,
        analysis_id: None,
        gate: None,
        zones: None,
    };
    let members = r#""request_id":"req-1111111111111111","stream_id":"yard","frames":10,"window_size":16,"segment_ms":250,"sampling_policy":"fixed","sample_fps":2.0,"mode":null,"model":"qwen3-vl-8b","markers":3"#;
    check(Event::AnalysisGenerated(generated.clone()), &format!("{{{members}}}"));
    generated.analysis_id = marker.analysis_id;
    let [scene_cut, luma_shift, activity_on, activity_off, flicker, ghosting, noise] =
        [1, 2, 4, 3, 5, 6, 7].map(|percent| Score::from_ratio(percent, 100));
    let (keepalive_frames, keepalive_ms) = (9, None);
    #[rustfmt::skip]
    let gate = GateConfig { keepalive_frames, keepalive_ms, scene_cut, luma_shift, activity_on, activity_off, flicker, ghosting, noise };
    generated.gate = Some(gate);
    let named = r#""analysis_id":"an-0000000000000002","gate":{"keepalive_frames":9,"scene_cut":0.01,"activity_on":0.04,"activity_off":0.03,"luma_shift":0.02,"flicker":0.05,"ghosting":0.06,"noise":0.07}"#;
    check(Event::AnalysisGenerated(generated.clone()), &format!("{{{members},{named}}}"));
    generated.zones = Some(Zones::default());
    check(Event::AnalysisGenerated(generated), &format!(r#"{{{members},{named},"zones":[]}}"#));
}

#[test]
fn findings_and_stills() {
    let finding = FindingPayload {
        frame_index: 4,
        pts_ms: 133,
        confidence: Score::ONE,
        description: text("a loop\n"),
        ..FindingPayload::default()
    };
    check(
        Event::Found(FindingKind::LoopDetected, finding),
        r#"{"frame_index":4,"pts_ms":133,"confidence":1.0,"description":"a loop\n"}"#,
    );
    let finding = FindingPayload {
        session_id: Some(SessionId::from_bytes([3; 16])),
        frame_index: 4,
        pts_ms: 133,
        end_pts_ms: Some(200),
        confidence: Score::ONE,
        description: text("a van"),
        summary: Some(text("van")),
        event_type: Some(EventType::Named(Cow::Borrowed("arrives"))),
        object_label: Some(text("van")),
        semantic_error: None,
        provider: Some(text("vllm")),
        model: Some(text("m")),
        total_tokens: Some(9),
        completion_tokens: Some(4),
        inference_latency_ms: Some(12),
        attempts: Some(2),
        prompt_version: Some(text("clip-1")),
        reused_from_seq: Some(Seq(7)),
        index_name: "yard".parse().ok(),
        truncated: true,
    };
    check(
        Event::Found(FindingKind::ClipVlmTiered, finding),
        r#"{"session_id":"sess-03030303030303030303030303030303","frame_index":4,"pts_ms":133,"end_pts_ms":200,"confidence":1.0,"description":"a van","summary":"van","event_type":"arrives","object_label":"van","provider":"vllm","model":"m","total_tokens":9,"completion_tokens":4,"inference_latency_ms":12,"attempts":2,"prompt_version":"clip-1","reused_from_seq":7,"index_name":"yard","truncated":true}"#,
    );
    let still = KeyframeStored {
        frame_index: 4,
        pts_ms: 133,
        event_type: EventType::Named(Cow::Borrowed("person_enters")),
        reason: Some(text("scene_cut")),
        description: String::new(),
        image_ref: text("keyframes/x"),
        image_bytes: 1234,
        image_sha256: BlobHash::from_bytes([0xcd; 32]),
        truncated: false,
    };
    check(
        Event::KeyframeStored(still),
        &format!(
            r#"{{"frame_index":4,"pts_ms":133,"event_type":"person_enters","reason":"scene_cut","description":"","image_ref":"keyframes/x","image_media_type":"image/jpeg","image_bytes":1234,"image_sha256":"{}"}}"#,
            "cd".repeat(32)
        ),
    );
}

#[test]
fn inference() {
    let stream_id: media::StreamId = "yard".parse().expect("a label");
    let inferred = SemanticChunkInferred {
        request_id: REQUEST,
        stream_id: stream_id.clone(),
        chunk_index: 1,
        provider: Some(text("vllm")),
        provider_fallback_used: false,
        semantic_fallback_used: false,
        semantic_error: None,
        event_type: EventType::from_name("person_enters"),
        object_label: None,
        summary: text("s"),
        description: text("d"),
        confidence: Some(Score::from_millionths(250_000)),
        raw_output: text("r"),
        output: None,
        tokens: tokens(),
        inference_latency_ms: 12,
        tier: Some(Pass::Second),
        model: Some(text("m")),
        attempts: Some(2),
        prompt_version: Some(text("describe-1")),
        start_pts_ms: Some(-40),
        end_pts_ms: Some(960),
        reused_from_seq: Some(Seq(7)),
        index_name: None,
        truncated: false,
    };
    let counts = r#""prompt_tokens":1,"completion_tokens":2,"thinking_tokens":3,"total_tokens":6,"inference_latency_ms":12"#;
    let start = r#"{"request_id":"req-1111111111111111","stream_id":"yard","#;
    check(
        Event::SemanticChunkInferred(inferred),
        &format!(
            r#"{start}"chunk_index":1,"provider":"vllm","provider_fallback_used":false,"semantic_fallback_used":false,"semantic_error":null,"event_type":"person_enters","object_label":null,"summary":"s","description":"d","confidence":0.25,"raw_output":"r",{counts},"tier":"second","model":"m","attempts":2,"prompt_version":"describe-1","start_pts_ms":-40,"end_pts_ms":960,"reused_from_seq":7}}"#
        ),
    );
    let before_the_model_was_named = format!(
        r#"{start}"chunk_index":1,"provider":null,"provider_fallback_used":false,"semantic_fallback_used":true,"semantic_error":"x","event_type":"e","object_label":null,"summary":"","description":"","confidence":0.0,"raw_output":"",{counts}}}"#
    );
    let read = Event::parse(EventKind::SemanticChunkInferred, &before_the_model_was_named);
    let Ok(Event::SemanticChunkInferred(old)) = read else { panic!("{read:?}") };
    assert_eq!((old.tier, old.model, old.start_pts_ms, old.end_pts_ms), (None, None, None, None));
    let generated = SemanticChunkGenerated {
        request_id: REQUEST,
        stream_id: stream_id.clone(),
        chunk_index: 1,
        chunk_frames: 30,
        process_ms: 5,
        source_span_ms: 1000,
        lag_ms: -2,
        index_name: "door".parse().ok(),
        tokens: tokens(),
        inference_latency_ms: 12,
    };
    check(
        Event::SemanticChunkGenerated(generated),
        &format!(
            r#"{start}"chunk_index":1,"chunk_frames":30,"process_ms":5,"source_span_ms":1000,"lag_ms":-2,"index_name":"door",{counts}}}"#
        ),
    );
    let fallback =
        SemanticFallbackActivated { request_id: REQUEST, stream_id, reason: text("no provider") };
    check(
        Event::SemanticFallbackActivated(fallback),
        &format!(r#"{start}"reason":"no provider"}}"#),
    );
    let completed = InferenceCompleted {
        request_id: REQUEST,
        provider: text("vllm"),
        model: text("m"),
        fallback_used: true,
        prompt_bytes: 10,
        output_bytes: 20,
        prompt_tokens: None,
        completion_tokens: None,
        thinking_tokens: None,
        total_tokens: None,
        inference_latency_ms: None,
        tier: None,
        attempts: None,
    };
    let start = r#"{"request_id":"req-1111111111111111","provider":"vllm","model":"m","fallback_used":true,"prompt_bytes":10,"output_bytes":20"#;
    // Text of older logs, without the cost.
    check(Event::InferenceCompleted(completed.clone()), &format!("{start}}}"));
    let told = InferenceCompleted {
        prompt_tokens: Some(3),
        completion_tokens: Some(2),
        thinking_tokens: Some(1),
        total_tokens: Some(6),
        inference_latency_ms: Some(40),
        tier: Some(Pass::First),
        attempts: Some(2),
        ..completed
    };
    check(
        Event::InferenceCompleted(told),
        &format!(
            r#"{start},"prompt_tokens":3,"completion_tokens":2,"thinking_tokens":1,"total_tokens":6,"inference_latency_ms":40,"tier":"first","attempts":2}}"#
        ),
    );
    let low = TokenBudgetLow {
        request_id: REQUEST,
        principal_key: text("alice"),
        day: text("2026-01-31"),
        used_tokens: 90,
        limit_tokens: 100,
    };
    check(
        Event::TokenBudgetLow(low),
        r#"{"request_id":"req-1111111111111111","principal_key":"alice","day":"2026-01-31","used_tokens":90,"limit_tokens":100}"#,
    );
    let back = SourceReconnected {
        request_id: REQUEST,
        stream_id: "main".parse().expect("an id"),
        frame_index: 250,
        pts_ms: 14_000,
        gap_ms: 4000,
        attempts: 2,
        reason: text("lost"),
    };
    check(
        Event::SourceReconnected(back),
        r#"{"request_id":"req-1111111111111111","stream_id":"main","frame_index":250,"pts_ms":14000,"gap_ms":4000,"attempts":2,"reason":"lost"}"#,
    );
}

#[test]
fn episodes() {
    let mut episode = ActivityEpisode {
        request_id: REQUEST,
        stream_id: "yard".parse().expect("a label"),
        session_id: None,
        start_frame: 12,
        end_frame: None,
        start_pts_ms: 480,
        end_pts_ms: None,
        peak_score: Score::from_millionths(16_000),
        peak_frame: 12,
        region: CellBox { left: 0, top: 0, right: 64, bottom: 40 },
        zones: Vec::new(),
    };
    let region = r#""region":{"x":0.0,"y":0.0,"width":1.0,"height":1.0}"#;
    check(
        Event::ActivityStarted(episode.clone()),
        &format!(
            r#"{{"request_id":"req-1111111111111111","stream_id":"yard","start_frame":12,"start_pts_ms":480,"peak_score":0.016,"peak_frame":12,{region},"zones":[]}}"#
        ),
    );
    episode.session_id = Some(SessionId::from_bytes([3; 16]));
    (episode.end_frame, episode.end_pts_ms) = (Some(30), Some(1200));
    episode.zones = vec![text("door"), text("yard")];
    check(
        Event::ActivityEnded(episode),
        &format!(
            r#"{{"request_id":"req-1111111111111111","stream_id":"yard","session_id":"sess-03030303030303030303030303030303","start_frame":12,"end_frame":30,"start_pts_ms":480,"end_pts_ms":1200,"peak_score":0.016,"peak_frame":12,{region},"zones":["door","yard"]}}"#
        ),
    );
}

#[test]
fn kinds_have_one_name_and_one_number_each() {
    for kind in EventKind::ALL {
        assert_eq!(EventKind::from_name(kind.as_str()), Some(*kind));
        assert_eq!(EventKind::from_code(kind.code()), Some(*kind));
    }
    assert_eq!(EventKind::ALL.len(), 28);
    assert_eq!((EventKind::from_code(0), EventKind::from_code(29)), (None, None));
}

#[test]
fn a_payload_of_another_shape_names_its_field() {
    let cases = [
        (EventKind::RunFailed, r#"{}"#, "reason"),
        (EventKind::RunFailed, r#"{"reason":7}"#, "reason"),
        (EventKind::RunCompleted, r#"{"request_id":"req-1"}"#, "request_id"),
        (EventKind::RunExpired, r#"[]"#, "(no JSON object)"),
    ];
    for (kind, text, field) in cases {
        assert_eq!(Event::parse(kind, text), Err(field), "{text}");
    }
    let tolerated = r#"{"reason":"x","added_later":[1]}"#;
    assert!(Event::parse(EventKind::RunFailed, tolerated).is_ok());
}

#[test]
fn json_text_is_one_value() {
    assert!(JsonText::parse(" {\"a\": 1} ").is_some());
    for text in ["", "{", "{} {}", "nul"] {
        assert_eq!(JsonText::parse(text), None, "{text}");
    }
}

#[test]
fn no_flipped_bit_leaves_a_record_intact() {
    let event = Event::RunFailed(RunFailed { request_id: None, reason: text("shutdown") });
    let mut bytes = Vec::new();
    let at = WallTime { epoch_ms: 1 };
    RecordBuilder::of(NewEvent { run: RUN, event }).expect("fits").put(&mut bytes, Seq(1), at);
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(JournalRecord::parse(&damaged).is_err(), "bit {bit}");
    }
}
