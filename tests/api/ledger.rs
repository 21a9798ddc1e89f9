//! The ledger on a disk that fills up: what needs it is refused, and works again with room.

use super::{retention::fill, routes::book::Book, uploads::uploading, webhooks};
use crate::support::{Server, can_mount, clips, receiver::Receiver, wait_until};

fn wait_for_ready(server: &Server, status: u16, text: &str) {
    wait_until(text, || {
        let ready = server.get("/v1/ready");
        ready.status == status && ready.text.contains(text)
    });
}

#[test]
fn records_are_written_again_once_a_full_disk_has_room() {
    if !can_mount() {
        return;
    }
    let clips = clips();
    let receiver = Receiver::start();
    let setup = webhooks::setup(&receiver).on_disk(64);
    let data = setup.dir().join("data");
    let setup = setup.var("SERVICE_PRINCIPAL_QUOTA_BYTES", &(1_u64 << 40).to_string());
    let server = setup.var("SERVICE_DISK_RESERVE_MIB", "0").start();
    let bytes = std::fs::read(clips.join("motion.mp4")).expect("a clip");
    let file = uploading(&server, "a.mp4", &bytes).send().assert_ok();
    let file = file.header("location").to_owned();
    let run = server.create_run();
    let hooks = format!("/v1/runs/{run}/webhooks");
    let hook = webhooks::hook(&server, &run, &receiver.url("/hook"));

    let ballast = server.sees(&data).join("ballast");
    let refused = (0..2000).find_map(|at| {
        fill(&ballast, u64::MAX);
        let reply = server.create_keyed(&format!("full-{at}"));
        (reply.status != 200).then_some(reply)
    });
    let refused = refused.expect("a record finds no room").assert_refused(503, "unavailable");
    assert!(!refused.header("retry-after").is_empty());
    fill(&ballast, u64::MAX);
    wait_for_ready(&server, 503, "records cannot be written");
    let mut book = Book::new(&server);
    for (method, path, is_plain) in [
        ("DELETE", file.clone(), true),
        ("DELETE", format!("{hooks}/{}", hook["webhook_id"].as_str().expect("an id")), false),
    ] {
        let reply = server.call(method, &path).send();
        assert_eq!(reply.status, 503, "{method} {path}: {}", reply.text);
        assert!(!reply.header("retry-after").is_empty(), "{method} {path}");
        assert_eq!(reply.code().is_empty(), is_plain, "{method} {path}: {}", reply.text);
        book.note(method, &path, &reply);
    }

    std::fs::remove_file(&ballast).expect("removed");
    wait_for_ready(&server, 200, "");
    let first = server.create_keyed("room").assert_ok();
    let again = server.create_keyed("room");
    assert_eq!((again.status, &again.json()["run_id"]), (200, &first.json()["run_id"]));
    server.call("DELETE", &file).send().assert_ok();
    assert_eq!(server.get(&file).status, 404);
    let listed = webhooks::listed(&server, &run, &hook["webhook_id"]);
    assert_eq!(listed["status"], "active", "it was not removed by halves");
}
