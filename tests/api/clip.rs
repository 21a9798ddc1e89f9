//! Parts of a run's source as files of their own: pictures, times, sound, whose they are, and what ends them.

use std::{
    fs,
    io::Read,
    net::TcpStream,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use clips::rendered;
use serde_json::json;

use crate::support::{BOB, Reply, Server, Setup, wait_until};

const SOUND: &str = "-f lavfi -i testsrc2=size=320x180:rate=30:duration=6 -f lavfi -i sine=duration=6 -pix_fmt yuv420p";
const KINDS: [(&str, &str, &str); 3] = [
    ("sound.mp4", "-c:v libx264 -preset ultrafast -g 30 -bf 2 -c:a aac", "video/mp4"),
    ("sound.ts", "-c:v libx264 -preset ultrafast -g 30 -bf 2 -c:a aac", "video/mp4"),
    (
        "sound.webm",
        "-c:v libvpx -deadline realtime -cpu-used 8 -g 40 -c:a libopus",
        "video/x-matroska",
    ),
];

/// A server with a root of its own.
fn served() -> (tempfile::TempDir, Server) {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Setup::new(dir.path()).own_root().start();
    (dir, server)
}

/// The place of the file's copy beneath the root.
fn beneath(dir: &Path, file: &Path) -> PathBuf {
    dir.join("root").join(file.file_name().expect("a name"))
}

/// A run of the file, which is put beneath the root.
fn ingested(server: &Server, dir: &Path, file: &Path) -> String {
    let copy = beneath(dir, file);
    fs::copy(file, &copy).expect("copied");
    server.ingested(&json!({"source_uri": copy, "max_frames": 2}))
}

fn path(run: &str, from: i64, to: i64) -> String {
    format!("/v1/runs/{run}/clip?from_ms={from}&to_ms={to}")
}

fn starts_at(reply: &Reply) -> i64 {
    reply.header("x-clip-starts-at-ms").parse().expect("a time")
}

/// Hashes of the frames, or packets, by ffmpeg's framemd5.
fn frames(file: &Path, options: &[&str]) -> Vec<String> {
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-v", "error", "-nostdin", "-i"]).arg(file).args(options);
    let output = ffmpeg.args(["-f", "framemd5", "-"]).output().expect("ffmpeg");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", file.display());
    let text = String::from_utf8(output.stdout).expect("text");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split(',').nth(5).expect("a hash").trim().to_owned()).collect()
}

/// Number of the pictures of a clip, which is left at `dir/clip`.
fn pictures(dir: &Path, clip: &Reply) -> usize {
    let file = dir.join("clip");
    fs::write(&file, &clip.bytes).expect("written");
    frames(&file, &["-map", "0:v:0", "-vsync", "passthrough"]).len()
}

const PACKETS: [&str; 4] = ["-map", "0:a:0", "-c", "copy"];

/// `decode/tests/media/parts.rs` compares the pictures of every codec and container with their source's.
#[test]
fn a_clip_has_the_pictures_and_the_sound_of_its_source() {
    let (dir, server) = served();
    for (name, line, kind) in KINDS {
        let source = rendered(name, &format!("{SOUND} {line}"));
        let run = ingested(&server, dir.path(), &source);
        // The service counts as the stream does, whose times may begin late.
        let offset = server.get(&format!("/v1/runs/{run}/signals")).json()["signals"][0]["pts_ms"]
            .as_i64()
            .expect("a time");
        if offset > 0 {
            assert_eq!(server.get(&path(&run, 0, offset)).fields(), ["to_ms"], "{name}");
        }
        let reply = server.get(&path(&run, 2500, 4000)).assert_ok();
        assert_eq!(reply.header("content-type"), kind, "{name}");
        let starts = starts_at(&reply);
        assert!((900..=2500).contains(&starts), "{name}: {starts}");
        let pictures = pictures(dir.path(), &reply) as i64;
        assert!(pictures >= (4000 - starts) * 30 / 1000, "{name}: {pictures} pictures");
        // Only a decoder tells the rate of AAC in MPEG-TS, and none looks at it.
        if !name.ends_with("ts") {
            let sound = frames(&dir.path().join("clip"), &PACKETS);
            let sounds = frames(&source, &PACKETS);
            assert!(sounds.windows(sound.len()).any(|part| part == sound), "{name}: another sound");
            let packets = sounds.len() as i64 * (4000 - starts) / 6000;
            let found = sound.len() as i64;
            assert!(packets.abs_diff(found) < 12, "{name}: {found} of {packets}");
        }
        of_a_damaged_source_comes_what_can_be_copied(&server, dir.path(), &run, &source);
    }
    ranges_and_owners_are_looked_at_as_those_of_a_source(&server, dir.path());
}

fn of_a_damaged_source_comes_what_can_be_copied(
    server: &Server,
    dir: &Path,
    run: &str,
    source: &Path,
) {
    let (file, bytes) = (beneath(dir, source), fs::read(source).expect("there"));
    let clip = || server.get(&path(run, 0, 5000));
    fs::write(&file, &bytes[..bytes.len() / 2]).expect("written");
    if file.extension().is_some_and(|ending| ending == "mp4") {
        // Its index is at its end.
        clip().assert_invalid("source_uri", file.display());
    } else {
        let found = pictures(dir, &clip().assert_ok());
        assert!((30..140).contains(&found), "{}: {found} pictures", file.display());
    }
    fs::write(&file, "<html>").expect("written");
    clip().assert_invalid("source_uri", file.display());
}

fn ranges_and_owners_are_looked_at_as_those_of_a_source(server: &Server, dir: &Path) {
    let source = rendered(KINDS[0].0, &format!("{SOUND} {}", KINDS[0].1));
    let run = ingested(server, dir, &source);
    let at = format!("/v1/runs/{run}/clip");
    let rows: [(&str, &[&str]); 8] = [
        ("", &["from_ms", "to_ms"]),
        ("?from_ms=0", &["to_ms"]),
        ("?from_ms=5&to_ms=5", &["to_ms"]),
        ("?from_ms=9&to_ms=5", &["to_ms"]),
        ("?from_ms=0&to_ms=600001", &["to_ms"]),
        ("?from_ms=x&to_ms=1e3", &["from_ms", "to_ms"]),
        ("?from_ms=6000&to_ms=6001", &["from_ms"]),
        ("?from_ms=9223372036854775000&to_ms=9223372036854775807", &["from_ms"]),
    ];
    for (query, fields) in rows {
        let reply = server.get(&format!("{at}{query}")).assert_status(422);
        assert_eq!(reply.fields(), fields, "{query}");
    }
    let whole = path(&run, 1000, 2000);
    let head = server.call("HEAD", &whole).send();
    assert_eq!((head.status, head.header("content-type"), head.bytes.len()), (200, "video/mp4", 0));
    assert_eq!(starts_at(&head), 1000);
    server.call("GET", &whole).key(Some(BOB)).send().assert_refused(404, "not_found");
    assert_eq!(server.call("GET", &whole).key(None).send().status, 401);
    let ticket = server.call("POST", &format!("/v1/runs/{run}/media-ticket")).send().json();
    let ticket = ticket["ticket"].as_str().expect("a ticket");
    let shown = |method: &str, path: &str| {
        server.call(method, &format!("{path}&ticket={ticket}")).key(None).send()
    };
    assert_eq!(shown("GET", &whole).bytes, server.get(&whole).bytes, "the same bytes each time");
    assert_eq!(shown("HEAD", &whole).status, 200);
    let other = ingested(server, dir, &source);
    assert_eq!(shown("GET", &path(&other, 0, 1000)).status, 401, "another run's");
    let fresh = server.create_run();
    assert_eq!(server.get(&path(&fresh, 0, 1000)).status, 404, "nothing was decoded");
    fs::remove_file(beneath(dir, &source)).expect("removed");
    assert_eq!(server.get(&whole).status, 404, "the file is gone");
    assert_eq!(server.call("DELETE", &format!("/v1/runs/{other}")).send().status, 200);
    assert_eq!(server.get(&path(&other, 0, 1000)).status, 404, "the run is gone");
}

/// Asks for a clip and takes its first bytes.
fn begin(server: &Server, path: &str) -> TcpStream {
    let mut stream = server.call("GET", path).begin();
    let mut status = [0; 12];
    stream.read_exact(&mut status).expect("an answer");
    assert_eq!(&status, b"HTTP/1.1 200");
    stream
}

fn wait_for(server: &Server, workers: usize) {
    wait_until("so many workers", || server.workers().len() == workers);
}

#[test]
fn a_client_that_goes_away_ends_the_work_and_each_principal_has_so_many() {
    let (dir, server) = served();
    let noise = rendered(
        "noise.mkv",
        "-f lavfi -i testsrc2=size=640x360:rate=30:duration=3,noise=alls=60:allf=t -c:v libx264 -preset ultrafast -crf 10 -g 30",
    );
    let long = clips::rendered_from("long-noise.mkv", "-stream_loop 9 -i {0} -c copy", &[&noise]);
    let run = ingested(&server, dir.path(), &long);
    wait_for(&server, 0);
    let limits = server.get("/v1/limits").json();
    let own = limits["limits"]["principal_clips"]["max"].as_u64().expect("a number") as usize;
    let whole = path(&run, 0, 30_000);
    let mut open: Vec<TcpStream> = (0..own).map(|_| begin(&server, &whole)).collect();
    assert_eq!(server.workers().len(), own, "they wait for whoever does not read");
    let waiting = std::thread::scope(|scope| {
        let next = scope.spawn(|| server.get(&path(&run, 0, 1000)).status);
        std::thread::sleep(Duration::from_millis(300));
        assert!(!next.is_finished(), "one more waits");
        open.pop();
        next.join().expect("answered")
    });
    assert_eq!(waiting, 200, "and has the place of one that went away");
    drop(open);
    wait_for(&server, 0);
    let mut one = begin(&server, &whole);
    assert_eq!(server.kill_workers(), 1);
    let mut rest = Vec::new();
    one.read_to_end(&mut rest).expect("ended");
    assert!(!rest.ends_with(b"0\r\n\r\n"), "an answer that was cut does not end as whole");
}
