//! The command line on a kernel without landlock.

use clips::pick_one;
use tempfile::TempDir;

use crate::{
    demo::server,
    no_landlock::without_landlock,
    support::{Outcome, command, finish, text},
};

fn unset(args: &[&str]) -> Outcome {
    let mut command = command(args);
    command.env_remove("SERVICE_SANDBOX");
    without_landlock(|| finish(command))
}

#[test]
fn media_is_refused_with_the_setting_that_allows_it_and_the_demo_goes_on() {
    let clip = text(pick_one("motion.mp4", "nature_flower.mp4"));
    for args in [&["analyze", &clip][..], &["doctor"]] {
        let outcome = unset(args);
        let said = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(outcome.code != 0 && said.contains("no landlock"), "{args:?}: {said}");
        assert!(said.contains("SERVICE_SANDBOX=best-effort"), "{args:?}: {said}");
    }
    let Some(server) = server() else { return };
    let (server, dir) = (text(server), TempDir::new().expect("a folder"));
    let out = dir.path().to_str().expect("a UTF-8 path");
    unset(&["demo", "--server-binary", &server, "--out", out, &clip]).says(0, "no landlock");
}
