//! HLS playlists behind URLs: made by ffmpeg, served over TLS, and every way in which they lead
//! where they must not.

use std::{fmt::Write, path::Path};

use serde_json::Value;

use crate::{
    api::remote::{ffmpeg, made, refused, setup},
    support::{
        clips,
        host::{Answer, Certificate, Host},
    },
};

const VECTOR: &str = "000102030405060708090a0b0c0d0e0f";
const KEY: [u8; 16] = *b"sixteen byte key";

fn write(dir: &Path, name: &str, bytes: impl AsRef<[u8]>) {
    std::fs::write(dir.join(name), bytes).expect("written");
}

/// `clip` as MPEG-TS and as fragmented MP4 playlists in `dir`, their segments encrypted, and the
/// same media whole.
fn make(dir: &Path, clip: &Path) {
    let clip = clip.to_str().expect("UTF-8");
    let vod = ["-an", "-c", "copy", "-f", "hls", "-hls_time", "1", "-hls_playlist_type", "vod"];
    let make = |more: &[&str]| ffmpeg(dir, &[&["-i", clip], &vod[..], more].concat());
    write(dir, "key.bin", KEY);
    write(dir, "key-info", format!("key.bin\nkey.bin\n{VECTOR}\n"));
    make(&["-hls_key_info_file", "key-info", "-hls_segment_filename", "ts-%d.ts", "ts.m3u8"]);
    make(&["-hls_segment_type", "fmp4", "-hls_segment_filename", "plain-%d.m4s", "mp4.m3u8"]);
    // ffmpeg packs both and encrypts one of them; a segment alone it does encrypt.
    let playlist = std::fs::read_to_string(dir.join("mp4.m3u8")).expect("made");
    let (mut secret, mut whole) =
        (String::new(), std::fs::read(dir.join("init.mp4")).expect("made"));
    for line in playlist.lines() {
        if line.starts_with("plain-") {
            whole.extend(std::fs::read(dir.join(line)).expect("made"));
            let (key, out) = (hex(&KEY), format!("crypto:{}", line.replace("plain", "secret")));
            let input = ["-f", "data", "-i", line, "-map", "0", "-c", "copy", "-f", "data"];
            let output = ["-encryption_key", &key, "-encryption_iv", VECTOR, &out];
            ffmpeg(dir, &[&input[..], &output].concat());
        }
        writeln!(secret, "{}", line.replace("plain", "secret")).expect("in memory");
        if line.starts_with("#EXT-X-MAP") {
            writeln!(secret, "#EXT-X-KEY:METHOD=AES-128,URI=\"key.bin\",IV=0x{VECTOR}")
                .expect("in memory");
        }
    }
    write(dir, "mp4.m3u8", secret);
    write(dir, "whole.mp4", whole);
    make(&["-hls_segment_filename", "plain-%d.ts", "plain.m3u8"]);
    let read = |number| std::fs::read(dir.join(format!("plain-{number}.ts")));
    write(
        dir,
        "whole.ts",
        (0..).map_while(|number| read(number).ok()).flatten().collect::<Vec<_>>(),
    );
    let master = |to: &str| format!("#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\n{to}\n");
    write(dir, "master.m3u8", master("mp4.m3u8"));
    write(dir, "deep-2.m3u8", master("master.m3u8"));
    write(dir, "deep-1.m3u8", master("deep-2.m3u8"));
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The signals without their times, which MPEG-TS counts from elsewhere, and the activity, which goes by them.
fn seen(made: &(Value, Vec<Value>)) -> Vec<Value> {
    let mut signals = made.0.as_array().expect("signals").clone();
    for signal in &mut signals {
        let fields = signal.as_object_mut().expect("a signal");
        fields.retain(|name, _| name != "pts_ms" && !name.starts_with("activity_"));
    }
    signals
}

fn serve(dir: &Path, certificate: &Certificate) -> Host {
    let dir = dir.to_owned();
    Host::start(certificate, move |asked, out| match asked.path.as_str() {
        "/to-private.ts" => out.redirect("https://192.168.0.1/a.ts"),
        path => match std::fs::read(dir.join(&path[1..])) {
            Ok(bytes) => out.ranged(asked, &bytes, &[]),
            Err(_) => out.status("404 Not Found"),
        },
    })
}

#[test]
fn a_playlist_gives_what_its_media_gives_as_a_file_and_leads_nowhere_that_its_host_could_not() {
    let dir = tempfile::tempdir().expect("a directory");
    let certificate = Certificate::new();
    let root = dir.path().join("root");
    std::fs::create_dir(&root).expect("made");
    make(&root, &clips().join("motion.mp4"));
    let host = serve(&root, &certificate);
    let plain = Host::start_plain(|_, out| out.status("200 OK"));
    let rows = misleading(&root, &plain);
    let server = setup(&certificate).var("SERVICE_ALLOW_REMOTE_HLS", "true");
    let server = server.root(&root).start();
    let rows = rows.into_iter().map(|(name, said)| (host.url(&format!("/{name}")), said));
    refused(&server, &server.create_run(), rows);
    let (requests, connections) = (host.asked().len(), host.connections());
    // Connections are used again: which side is done with one first decides how often.
    assert!(connections < requests / 2, "{requests} requests over {connections} connections");
    assert!(plain.asked().is_empty(), "nothing was sent over plain HTTP");
    let whole = made(&server, "whole.mp4");
    for name in ["mp4.m3u8", "master.m3u8", "deep-2.m3u8"] {
        let found = made(&server, &host.url(&format!("/{name}")));
        assert!(found == whole, "{name} differs from its segments in one file");
    }
    let found = made(&server, &host.url("/ts.m3u8"));
    assert!(found == made(&server, "whole.ts"), "ts.m3u8 differs from its segments in one file");
    assert!(seen(&found) == seen(&whole) && found.1 == whole.1, "one picture is another");
}

/// Playlists that must be refused, and what each is told.
fn misleading(dir: &Path, plain: &Host) -> Vec<(&'static str, &'static str)> {
    let media = |lines: &str| format!("#EXTM3U\n#EXT-X-TARGETDURATION:3\n{lines}#EXT-X-ENDLIST\n");
    let segment = |address: &str| media(&format!("#EXTINF:3,\n{address}\n"));
    let keyed = |key: &str| {
        media(&format!("#EXT-X-KEY:METHOD=AES-128,URI=\"{key}\"\n#EXTINF:3,\nts-0.ts\n"))
    };
    write(dir, "private.m3u8", segment("https://10.1.2.3/a.ts"));
    write(dir, "metadata.m3u8", segment("https://169.254.169.254/latest"));
    write(dir, "redirected.m3u8", segment("to-private.ts"));
    write(dir, "file.m3u8", segment("file:///etc/passwd"));
    write(dir, "plain.m3u8", segment(&plain.url("/a.ts")));
    write(dir, "missing.m3u8", segment("no-such.ts"));
    write(dir, "private-key.m3u8", keyed("https://10.1.2.3/key"));
    write(dir, "wrong-key.bin", [7; 16]);
    write(dir, "wrong-key.m3u8", keyed("wrong-key.bin"));
    write(
        dir,
        "private-map.m3u8",
        media("#EXT-X-MAP:URI=\"https://[fd00::1]/i\"\n#EXTINF:3,\na\n"),
    );
    let variant = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\nhttps://172.16.0.1/v.m3u8\n";
    write(dir, "private-variant.m3u8", variant);
    write(dir, "long.m3u8", format!("#EXTM3U\n{}", "#comment\n".repeat(5 << 17)));
    // A packet that carries nothing: segments without a frame.
    write(dir, "null.ts", [&[0x47, 0x1f, 0xff, 0x10][..], &[0xff; 184]].concat().repeat(10));
    write(dir, "many.m3u8", media(&"#EXTINF:1,\nnull.ts\n".repeat(5000)));
    vec![
        ("private.m3u8", "blocked address: 10.1.2.3"),
        ("metadata.m3u8", "a cloud's metadata service"),
        ("redirected.m3u8", "blocked address: 192.168.0.1"),
        ("file.m3u8", "only http and https are followed"),
        ("plain.m3u8", "http needs SERVICE_ALLOW_INSECURE_HTTP=true"),
        ("missing.m3u8", "http status: localhost answered 404"),
        ("private-key.m3u8", "blocked address: 10.1.2.3"),
        ("wrong-key.m3u8", "does not decrypt"),
        ("private-map.m3u8", "(unique local)"),
        ("private-variant.m3u8", "blocked address: 172.16.0.1"),
        ("deep-1.m3u8", "too large: playlists are nested more than 3 deep"),
        ("long.m3u8", "too large: a playlist is over 4 MiB"),
        ("many.m3u8", "too large: more than 4096 requests"),
    ]
}
