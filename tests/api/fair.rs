//! Work of one principal beside that of others: slow sources and floods hold nobody up.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::sleep,
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    api::remote::setup,
    support::{
        ALICE, BOB, Setup,
        host::{Answer, Certificate, Host},
        wait_until,
    },
};

/// A minute of H.264 in Matroska.
pub fn minute() -> Vec<u8> {
    let recipe = "-f lavfi -i testsrc2=size=320x180:rate=30:duration=60 -pix_fmt yuv420p \
        -c:v libx264 -preset ultrafast -g 30";
    std::fs::read(clips::rendered("minute.mkv", recipe)).expect("readable")
}

#[test]
fn slow_sources_of_one_principal_hold_up_no_other() {
    let certificate = Certificate::new();
    // Of minutes at the pace at which it is sent, whatever the machine has to do.
    let bytes = minute();
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let host = Host::start(&certificate, move |_, out| {
        out.head("200 OK", &[&format!("content-length: {}", bytes.len())])?;
        let (first, rest) = bytes.split_at(200 << 10);
        out.write_all(first)?;
        for part in rest.chunks(1000) {
            out.flush()?;
            sleep(Duration::from_millis(100));
            if over.load(Ordering::Relaxed) {
                break;
            }
            out.write_all(part)?;
        }
        Err(io::ErrorKind::ConnectionReset.into())
    });
    let server = setup(&certificate).clips().start();
    let limits = server.get("/v1/limits").json()["limits"].clone();
    let most = |name: &str| limits[name]["max"].as_u64().expect("a number");
    let slow = most("principal_remote_jobs");
    assert!(slow >= most("file_jobs") && slow < most("remote_jobs"), "{limits}");
    let runs: Vec<String> = (0..slow).map(|_| server.create_run()).collect();
    for run in &runs {
        let source = json!({ "source_uri": host.url("/slow.mkv"), "max_frames": 1800 });
        server.start_job(run, "ingest", &source);
    }
    let active_job = |run: &String| server.record(run)["active_job"].clone();
    let is_decoding = |run: &String| active_job(run)["frames_done"].as_u64() > Some(0);
    wait_until("slow sources are decoded beside each other", || runs.iter().all(is_decoding));

    let bobs = |path: &str, body: &Value| {
        server.call("POST", path).key(Some(BOB)).json(body).send().assert_ok()
    };
    let path = format!("/v1/runs/{}/ingest", bobs("/v1/runs", &json!({})).run());
    let local = json!({ "source_uri": "motion.mp4", "max_frames": 30 });
    assert_eq!(bobs(&path, &local).json()["decoded_frames"], 30);
    for run in &runs {
        assert_eq!(active_job(run)["status"], "running", "bob waited for none of them");
    }
    is_over.store(true, Ordering::Relaxed);
}

#[test]
fn what_was_taken_of_one_principal_is_not_given_up_for_another() {
    let server = Setup::temporary().clips().start();
    let limits = server.get("/v1/limits").json()["limits"].clone();
    let most = |name: &str| limits[name]["max"].as_u64().expect("a number") as usize;
    let places = most("file_jobs") + most("file_jobs_waiting");
    let ask = |key: &str| {
        let post = |path: &str, body: &Value| {
            let call = server.call("POST", path).key(Some(key));
            call.header("prefer", "respond-async").json(body).send()
        };
        let run = post("/v1/runs", &json!({})).run();
        let source = json!({ "source_uri": "long.mp4", "max_frames": 500_000 });
        post(&format!("/v1/runs/{run}/ingest"), &source)
    };
    let alices: Vec<_> = (0..places + 3).map(|_| ask(ALICE)).collect();
    let (taken, refused) = alices.split_at(places);
    assert!(taken.iter().all(|reply| reply.status == 202), "{places} jobs");
    for reply in refused {
        assert_eq!((reply.status, reply.header("retry-after")), (503, "1"), "{}", reply.text);
    }
    for number in 0..3 {
        assert_eq!(ask(BOB).status, 202, "bob's job {number} beside a full queue");
    }
    for reply in taken {
        let job = server.get(reply.header("location")).json();
        let status = job["status"].as_str().expect("a status");
        assert!(["queued", "running"].contains(&status), "{job}");
    }
}
