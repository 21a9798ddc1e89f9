//! Tests of owners of a prefix, files under other keys, credentials, and secrets in texts.
#![allow(missing_docs)]

mod support;

use std::thread;

use objects::Objects;
use s3_server::{ACCESS_KEY, Fault, SECRET_KEY};
use support::{LIMIT, Size as _, World, content, upload, whole};
use timeline::{RemoteError, RemoteFault};

#[test]
fn a_prefix_is_of_one_server() {
    let world = World::new();
    let first = world.client("srv-first").folder("stills");
    let second = world.client("srv-second").folder("stills");
    let file = world.file(1, 100);
    upload(&*first, &file).expect("stored");
    let foreign = |error: RemoteError| {
        assert_eq!(error.fault, RemoteFault::Foreign);
        for part in ["srv-first", "SERVICE_NODE_TAG", "cameras/north/00a1/owner"] {
            assert!(error.detail.contains(part), "{error}");
        }
    };
    foreign(upload(&*second, &file).expect_err("foreign"));
    foreign(second.size(&file.0).expect_err("foreign"));
    foreign(whole(&*second, &file.0).expect_err("foreign"));
    foreign(second.remove(&[file.0]).expect_err("foreign"));
    assert_eq!(first.size(&file.0), Ok(Some(100)));
    // The first server is gone for good.
    let key = "cameras/north/00a1/owner";
    world.runtime.block_on(async {
        assert_eq!(world.client("x").claim("00a1/owner", "x").await.as_deref(), Ok("srv-first"));
    });
    world.server.put(key, b"srv-second\n").expect("stored");
    assert_eq!(second.size(&file.0), Ok(Some(100)));
}

#[test]
fn of_two_that_claim_at_once_one_holds() {
    for fault in [Fault::None, Fault::NoConditions] {
        let world = World::new();
        world.server.set(fault);
        let clients: Vec<Objects> = (0..6).map(|n| world.client(&format!("srv-{n}"))).collect();
        let file = world.file(1, 100);
        let held = thread::scope(|scope| {
            let upload_to = |client: &Objects| upload(&*client.folder("stills"), &file);
            let uploads: Vec<_> =
                clients.iter().map(|client| scope.spawn(move || upload_to(client))).collect();
            let outcomes = uploads.into_iter().map(|one| one.join().expect("an outcome"));
            outcomes.collect::<Vec<_>>()
        });
        let holders = held.iter().filter(|outcome| outcome.is_ok()).count();
        // Without conditional PUT, two servers that write at the same moment may both read their own name.
        let fits = if fault == Fault::None { holders == 1 } else { holders >= 1 };
        assert!(fits, "{fault:?}: {held:?}");
        let foreign = |error: &RemoteError| error.fault == RemoteFault::Foreign;
        assert!(held.iter().filter_map(|outcome| outcome.as_ref().err()).all(foreign), "{held:?}");
    }
}

#[test]
fn a_file_replaces_another_and_a_claim_does_not() {
    let world = World::new();
    let objects = world.client("srv-1");
    let large = world.file(2, 9 * 1024 * 1024).1;
    let small = world.file(1, 100).1;
    let done = world.runtime.spawn(async move {
        objects.put_file("export/day=1/a.parquet", &large, LIMIT).await?;
        objects.put_file("export/day=1/a.parquet", &small, LIMIT).await?;
        let names = [
            objects.claim("export/owner", "one").await?,
            objects.claim("export/owner", "two").await?,
        ];
        let wrong = objects.put_file("../a", &small, LIMIT).await.expect_err("no key");
        Ok::<_, RemoteError>((names, wrong))
    });
    let (names, wrong) = world.runtime.block_on(done).expect("a task").expect("stored");
    assert_eq!(names, ["one", "one"]);
    assert!(wrong.detail.starts_with("not a key"), "{wrong}");
    let stored = world.server.object("cameras/north/export/day=1/a.parquet");
    assert_eq!(stored, Some(content(1, 100)));
    assert!(world.server.object("cameras/north/00a1/owner").is_none());
}

#[test]
fn no_text_holds_a_secret() {
    let world = World::new();
    let objects = world.client("srv-1");
    let folder = objects.folder("stills");
    world.server.set(Fault::Talks);
    let denied = folder.size(&world.file(1, 10).0).expect_err("denied");
    assert_eq!(denied.detail, "InvalidAccessKeyId: key ... is bad: https://s3.test/footage/a ...");
    let wrong = world.client_with("srv-1", "another-secret").folder("stills");
    world.server.set(Fault::None);
    let refused = wrong.size(&world.file(1, 10).0).expect_err("denied");
    let texts = [
        format!("{objects:?} {folder:?} {denied:?} {denied}"),
        format!("{wrong:?} {refused:?} {refused} {objects}"),
    ];
    for text in texts {
        for secret in [ACCESS_KEY, SECRET_KEY, "another-secret", "Signature=", "<"] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
}
