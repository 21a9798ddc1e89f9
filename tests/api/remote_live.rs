//! HLS playlists behind URLs: how much one may ask for, and those that grow, followed for as long as they do, behind a host that fails
//! and one that falls silent. `worker/tests/worker/hls.rs` has what others give and why they are refused, `goldens.rs` the events of
//! one, `forgery.rs` where they may lead.

use std::{
    fmt::Write,
    io,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{
            AtomicBool, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    thread::sleep,
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    api::{
        recordings::{check_gaps, check_whole, recorded},
        remote::{ffmpeg, ingest, made, refused, setup},
    },
    support::{
        Server,
        host::{Answer, Certificate, Host},
        wait_until,
    },
};

/// Segments of the broadcast, of so many frames each, and those that its playlist names at a time.
const SEGMENTS: usize = 20;
const FRAMES: usize = 25;
const WINDOW: usize = 8;
/// Segments that are made when it is first looked at, before its host fails, and before it falls silent.
const BEGUN: usize = 6;
const BEFORE: usize = 10;
const BETWEEN: usize = 16;
/// Time from one segment to the next: less than it lasts, so that the test does.
const EVERY: Duration = Duration::from_millis(400);

/// A broadcast, as its host shows it.
#[derive(Default)]
struct Broadcast {
    /// Segments that are made.
    made: AtomicUsize,
    has_ended: AtomicBool,
    /// Its host answers nothing.
    is_down: AtomicBool,
    /// Segments that were sent whole.
    sent: Mutex<Vec<usize>>,
}

impl Broadcast {
    fn playlist(&self) -> String {
        let made = self.made.load(SeqCst);
        let first = made.saturating_sub(WINDOW);
        let mut text = format!("#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXT-X-MEDIA-SEQUENCE:{first}\n");
        for segment in first..made {
            write!(text, "#EXTINF:1,\nlist{segment}.ts\n").expect("in memory");
        }
        if self.has_ended.load(SeqCst) {
            text += "#EXT-X-ENDLIST\n";
        }
        text
    }

    fn host(self: &Arc<Self>, dir: &Path, certificate: &Certificate) -> Host {
        let (broadcast, dir) = (Arc::clone(self), dir.to_owned());
        Host::start(certificate, move |asked, out| {
            if broadcast.is_down.load(SeqCst) {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            let name = &asked.path[1..];
            if name == "live.m3u8" {
                return out.whole(broadcast.playlist().as_bytes());
            }
            out.whole(&std::fs::read(dir.join(name)).expect("a segment"))?;
            let number = name.trim_start_matches("list").trim_end_matches(".ts");
            broadcast.sent.lock().expect("no panic").push(number.parse().expect("a number"));
            Ok(())
        })
    }

    /// Makes segments up to `until`, at its pace.
    fn make(&self, until: usize) {
        while self.made.load(SeqCst) < until {
            self.made.fetch_add(1, SeqCst);
            sleep(EVERY);
        }
    }
}

fn record(server: &Server, source: &str) -> String {
    let run = server.create_run();
    let body = json!({"source_uri": source, "max_frames": 500_000});
    server.start_job(&run, "ingest", &body);
    run
}

/// Hashes of the pictures.
fn hashes(signals: &Value) -> Vec<Value> {
    let signals = signals.as_array().expect("an array").iter();
    signals.map(|signal| signal["perceptual_hash"].clone()).collect()
}

#[test]
fn a_playlist_that_grows_is_one_recording_whatever_its_host_does() {
    let dir = tempfile::tempdir().expect("a directory");
    let certificate = Certificate::new();
    let root = dir.path().join("root");
    std::fs::create_dir(&root).expect("made");
    let video = format!("testsrc2=s=320x240:r={FRAMES}:d={SEGMENTS}");
    let hls = ["-g", "25", "-f", "hls", "-hls_time", "1", "-hls_list_size", "0", "list.m3u8"];
    ffmpeg(&root, &[&["-f", "lavfi", "-i", &video][..], &hls].concat());
    let server = setup(&certificate).var("SERVICE_ALLOW_REMOTE_HLS", "true");
    let server = server.root(&root).start();
    let segments = (0..SEGMENTS).map(|segment| root.join(format!("list{segment}.ts")));
    let bytes: Vec<u8> = segments.flat_map(|path| std::fs::read(path).expect("made")).collect();
    std::fs::write(root.join("whole.ts"), bytes).expect("written");
    let whole = hashes(&made(&server, "whole.ts").0);
    assert_eq!(whole.len(), SEGMENTS * FRAMES);

    let broadcast = Arc::new(Broadcast::default());
    let host = broadcast.host(&root, &certificate);
    broadcast.made.store(BEGUN, Relaxed);
    let run = record(&server, &host.url("/live.m3u8"));
    let frames = || recorded(&server, &run).0;
    let gaps = || server.payloads(&run, "source_reconnected");
    // To know the stream takes some seconds of it.
    broadcast.make(BEFORE);
    wait_until("its first frames", || frames() > 0);
    // Events come while it grows.
    wait_until("markers", || recorded(&server, &run).1.len() > 1);
    broadcast.is_down.store(true, SeqCst);
    sleep(Duration::from_secs(3));
    broadcast.is_down.store(false, SeqCst);
    broadcast.make(BETWEEN);
    wait_until("it is there again", || gaps().len() == 1);
    // It makes nothing for longer than that is waited for.
    wait_until("all so far", || {
        broadcast.sent.lock().expect("no panic").last() == Some(&(BETWEEN - 1))
    });
    sleep(Duration::from_secs(13));
    broadcast.make(SEGMENTS);
    broadcast.has_ended.store(true, SeqCst);
    let decoded = server.wait_for_event(&run, "frames_decoded");
    assert_eq!((&decoded["truncated"], &decoded["reason"]), (&Value::Null, &Value::Null));
    let signals = server.get(&format!("/v1/runs/{run}/signals")).json();
    let found = hashes(&signals["signals"]);
    assert!(whole.ends_with(&found), "no segment is missing, and none there twice");
    let began = SEGMENTS - found.len() / FRAMES;
    assert!(found.len().is_multiple_of(FRAMES) && began < BEFORE, "{} frames", found.len());
    // What the first look at the playlist has read is read again.
    let mut sent = broadcast.sent.lock().expect("no panic").clone();
    sent.retain(|segment| *segment >= BEFORE);
    assert_eq!(sent, (BEFORE..SEGMENTS).collect::<Vec<_>>(), "each once");
    check_whole(&server, &run, "a playlist");
    check_gaps(&server, &run);
    let gaps = gaps();
    assert_eq!(gaps.len(), 2, "{gaps:?}");
    assert_eq!(gaps[1]["reason"], "its playlist does not grow any more", "{gaps:?}");
    // The silence counts, although its last picture comes out only at its end.
    assert!(gaps[1]["gap_ms"].as_u64() > Some(12_000), "{gaps:?}");
}

#[test]
fn a_playlist_has_a_bound_of_requests_but_while_it_grows_any_number_of_segments() {
    const MANY: usize = 4200;
    let certificate = Certificate::new();
    let segments = "#EXTINF:1,\nnull.ts\n".repeat(5000);
    let ended = format!("#EXTM3U\n#EXT-X-TARGETDURATION:3\n{segments}#EXT-X-ENDLIST\n");
    // A packet that carries nothing: segments without a frame.
    let packet = [&[0x47, 0x1f, 0xff, 0x10][..], &[0xff; 184]].concat().repeat(10);
    let one = "-f lavfi -i testsrc2=s=64x64:r=25:d=0.04 -c:v libx264";
    let segment = std::fs::read(clips::rendered("one.ts", one)).expect("readable");
    let mut playlist = "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXT-X-PLAYLIST-TYPE:EVENT\n".to_owned();
    for _ in 0..MANY {
        playlist += "#EXT-X-DISCONTINUITY\n#EXTINF:0.04,\none.ts\n";
    }
    let one = "#EXT-X-DISCONTINUITY\n#EXTINF:0.04,\none.ts\n".repeat(100);
    let gone = format!("#EXTM3U\n{one}#EXTINF:1,\ngone.ts\n#EXT-X-ENDLIST\n");
    let host = Host::start(&certificate, move |asked, out| match asked.path.as_str() {
        "/null.ts" => out.ranged(asked, &packet, &[]),
        "/ended.m3u8" => out.ranged(asked, ended.as_bytes(), &[]),
        "/gone.m3u8" => out.whole(gone.as_bytes()),
        "/gone.ts" => out.status("404 Not Found"),
        "/one.ts" => out.whole(&segment),
        _ => out.whole(playlist.as_bytes()),
    });
    let server = setup(&certificate).var("SERVICE_ALLOW_REMOTE_HLS", "true").start();
    let many = [(host.url("/ended.m3u8"), "too large: more than 4096 requests")];
    refused(&server, &server.create_run(), many);
    let (requests, connections) = (host.asked().len(), host.connections());
    // Which side is done with a connection first decides how often.
    assert!(connections < requests / 2, "{requests} requests over {connections} connections");
    // One that lacks a segment keeps what is before it.
    let run = server.create_run();
    let reply = ingest(&server, &run, &host.url("/gone.m3u8")).assert_status(422);
    assert!(reply.source_message().contains("answered 404"), "{}", reply.text);
    let decoded = server.payloads(&run, "frames_decoded").remove(0);
    assert!(decoded["decoded_frames"].as_u64() > Some(90), "{decoded}");
    let run = record(&server, &host.url("/live.m3u8"));
    wait_until("all of its frames but those that wait for the next", || {
        let active = server.get(&format!("/v1/runs/{run}")).json()["active_job"].take();
        active["frames_done"].as_u64() > Some(MANY as u64 - 100)
    });
    assert_eq!(server.post_run(&run, "stop", &json!({})).status, 200);
    assert_eq!(server.wait_for_event(&run, "frames_decoded")["reason"], "stopped");
    assert!(server.payloads(&run, "source_reconnected").is_empty(), "it is read at one go");
}
