//! Ends of reading a remote source: too slow, too much, cut off, stopped; and nothing of it stays
//! behind.

use std::{
    io,
    net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream},
    os::fd::OwnedFd,
    thread::sleep,
    time::Duration,
};

use rustix::net::{AddressFamily, SocketType, bind, listen, socket};
use serde_json::json;

use crate::{
    api::remote::{ingest, setup},
    support::{
        PATIENCE, Reply, Server, clip_bytes,
        host::{Answer, Certificate, Host},
        wait_until,
    },
};

/// Longer than every wait of the server for a byte.
const TOO_LONG: Duration = Duration::from_secs(15);

/// A port whose queue of connections is full: nobody answers a further one.
fn full() -> (Vec<OwnedFd>, u16) {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    let any = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
    bind(&socket, &any).expect("a free port");
    listen(&socket, 0).expect("listening");
    let own = TcpListener::from(socket);
    let addr = own.local_addr().expect("an address");
    let mut queue = vec![OwnedFd::from(own)];
    let wait = Duration::from_millis(300);
    while let Ok(waiting) = TcpStream::connect_timeout(&addr, wait) {
        queue.push(waiting.into());
    }
    (queue, addr.port())
}

#[test]
fn a_slow_source_is_told_what_took_too_long_and_one_that_is_cut_off_keeps_its_frames() {
    let certificate = Certificate::new();
    let bytes = clip_bytes("water.webm");
    let host = Host::start(&certificate, move |asked, out| {
        let length = format!("content-length: {}", bytes.len());
        match asked.path.as_str() {
            "/silent" => sleep(TOO_LONG),
            "/stalling" | "/cut" => {
                out.head("200 OK", &[&length])?;
                out.write_all(&bytes[..bytes.len() / 2])?;
                out.flush()?;
                if asked.path == "/stalling" {
                    sleep(TOO_LONG);
                }
            }
            _ => {
                out.head("200 OK", &[&length])?;
                for byte in &bytes {
                    out.write_all(&[*byte])?;
                    out.flush()?;
                    sleep(Duration::from_millis(500));
                }
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    });
    let mute = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = mute.local_addr().expect("an address").port();
    let (_queue, full) = full();
    let server = setup(&certificate).start();
    let rows = [
        (host.url("/silent"), "timeout: no answer came within 10 s"),
        (host.url("/dripping"), "timeout: the source sent too little to decode a frame"),
        (format!("https://localhost:{port}/"), "timeout: no secure connection was made within 5 s"),
        (format!("https://localhost:{full}/"), "timeout: no connection was made within 5 s"),
        (format!("rtsps://localhost:{port}/"), "timeout: no secure connection was made within 5 s"),
    ];
    std::thread::scope(|scope| {
        let server = &server;
        for (path, frames) in [("/stalling", 0), ("/cut", 10)] {
            let source = host.url(path);
            scope.spawn(move || {
                let reply = ingest(server, &server.create_run(), &source).assert_ok().json();
                assert_eq!(reply["truncated"], true, "what came before is kept: {reply}");
                assert!(reply["decoded_frames"].as_u64() > Some(frames), "{path}: {reply}");
            });
        }
        for (source, expected) in &rows {
            scope.spawn(move || {
                let run = server.create_run();
                let reply = ingest(server, &run, source);
                let message = reply.source_message();
                assert!(message.contains(expected), "{source}: {message}");
                // What is refused once it is read says that it was accepted, and no more.
                assert!(server.kinds(&run)[1..].iter().all(|kind| kind == "ingest_started"));
            });
        }
    });
}

/// A state in `/proc/net/tcp`.
const ESTABLISHED: &str = "01";

/// Pipes of the server's process, and its connections to `port`.
fn open_ends(server: &Server, port: u16) -> (usize, usize) {
    let process = format!("/proc/{}", server.pid());
    let links = std::fs::read_dir(format!("{process}/fd")).expect("there").flatten();
    let names = links.filter_map(|link| std::fs::read_link(link.path()).ok());
    let pipes = names.filter(|name| name.to_string_lossy().starts_with("pipe:")).count();
    let sockets = std::fs::read_to_string(format!("{process}/net/tcp")).expect("there");
    let is_open = |line: &&str| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        columns[2].ends_with(&format!(":{port:04X}")) && columns[3] == ESTABLISHED
    };
    (pipes, sockets.lines().filter(is_open).count())
}

#[test]
fn an_endless_source_ends_at_its_budget_and_is_never_held() {
    let certificate = Certificate::new();
    let bytes = clip_bytes("water.webm");
    let host = Host::start(&certificate, move |asked, out| {
        let length: &[&str] = match asked.path.as_str() {
            "/long" => &["content-length: 1000000000000"],
            _ => &["connection: close"],
        };
        out.head("200 OK", length)?;
        // The frames of half a clip, then one element of a tebibyte that readers pass over.
        out.write_all(&bytes[..bytes.len() / 2])?;
        out.write_all(&[0xec, 0x01, 0, 1, 0, 0, 0, 0, 0])?;
        let nothing = vec![0; 1 << 20];
        loop {
            out.write_all(&nothing)?;
        }
    });
    let server = setup(&certificate).var("SERVICE_REMOTE_MAX_BYTES", "268435456");
    let server = server.start();
    let before = server.memory_kb("VmRSS");
    for path in ["/long", "/endless"] {
        let reply = ingest(&server, &server.create_run(), &host.url(path));
        let message = reply.source_message();
        assert_eq!(message, "too large: more than 268435456 bytes", "{path}");
    }
    assert_eq!(server.metric("service_remote_failures_total{class=\"too_large\"}"), 2.0);
    let fetched = server.metric("service_remote_bytes_total") as u64;
    assert!((512 << 20..520 << 20).contains(&fetched), "{fetched} bytes");
    let grown = server.memory_kb("VmHWM").saturating_sub(before);
    println!("256 MiB fetched twice: {grown} kB more at the most");
    assert!(grown < 48 << 10, "{grown} kB more for bodies that only pass through");
}

/// Starts an ingest of a source that never ends, does `act` once bytes flow, and gives its answer.
fn meanwhile(server: &Server, run: &str, source: &str, act: impl FnOnce()) -> Reply {
    std::thread::scope(|scope| {
        let job = scope.spawn(|| ingest(server, run, source));
        sleep(Duration::from_secs(1));
        assert!(!job.is_finished(), "the source ended by itself");
        act();
        job.join().expect("no panic")
    })
}

#[test]
fn a_job_that_ends_leaves_no_connection_behind() {
    let certificate = Certificate::new();
    let bytes = clip_bytes("water.webm");
    let host = Host::start(&certificate, move |asked, out| {
        if asked.path == "/stalling" {
            out.head("200 OK", &["content-length: 1000000000"])?;
            out.write_all(&bytes[..bytes.len() / 2])?;
            out.flush()?;
        }
        // Below the server's patience: the job is ended, not given up.
        sleep(Duration::from_secs(8));
        Err(io::ErrorKind::TimedOut.into())
    });
    let mut server = setup(&certificate).start();
    let at_rest = open_ends(&server, host.port());
    let path = |run: &str| format!("/v1/runs/{run}");
    for source in ["/stalling", "/silent"] {
        let run = server.create_run();
        let stop = || {
            server.post(&format!("{}/stop", path(&run)), &json!({})).assert_ok();
        };
        meanwhile(&server, &run, &host.url(source), stop).assert_refused(409, "conflict");
        let run = server.create_run();
        let delete = || assert_eq!(server.call("DELETE", &path(&run)).send().status, 200);
        meanwhile(&server, &run, &host.url(source), delete).assert_refused(404, "not_found");
    }
    wait_until("no connection stays open", || open_ends(&server, host.port()) == at_rest);
    let run = server.create_run();
    let reply = meanwhile(&server, &run, &host.url("/stalling"), || {
        server.terminate();
        // The second ends jobs without waiting for them.
        sleep(Duration::from_millis(300));
        server.terminate();
    });
    reply.assert_refused(503, "unavailable");
    assert!(server.wait(PATIENCE).success());
}
