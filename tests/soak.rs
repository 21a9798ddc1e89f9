//! Everything at once for a long time, while what the server depends on comes and goes: every promise holds to the end,
//! and memory, descriptors, threads, children and disk are those of the model.
//!
//! `SIGHTLINE_SOAK_MINUTES` says how long; in two hours ten million events, 5,000 runs, 2,000 recordings and 500
//! live sessions. Where it is not set, five minutes at a sixth of that pace. `SIGHTLINE_SOAK_OUT` names a folder for
//! the samples.

mod figures;
mod load;
mod world;

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::Path,
    time::{Duration, Instant},
};

use figures::Figures;
use load::Load;
use world::World;

use crate::support::{setting, wait_until, whip::sightline};

/// Time in which the whole load is given.
const WHOLE: Duration = Duration::from_secs(7200);

#[test]
fn all_of_it_for_long_leaves_the_server_as_it_was() {
    let Some(sightline) = sightline() else { return };
    let minutes: Option<f64> = setting("SIGHTLINE_SOAK_MINUTES").map(|text| {
        let minutes = text.to_str().and_then(|text| text.parse().ok());
        minutes.expect("SIGHTLINE_SOAK_MINUTES is a number")
    });
    let whole = minutes.map_or(6 * WHOLE, |_| WHOLE);
    let length = Duration::from_secs_f64(minutes.unwrap_or(5.0) * 60.0);
    let mut world = World::start();
    let load = Load::new(&world.server, &sightline, whole);
    load.once_of_each();
    rest(&world);
    let before = world.sample();
    let figures = Figures::default();
    let until = Instant::now() + length;
    let ended = catch_unwind(AssertUnwindSafe(|| {
        std::thread::scope(|scope| {
            load.start(scope, until);
            scope.spawn(|| figures.take(&world, until));
            world.flap(until);
        });
    }));
    eprintln!("soak: {load}\nsoak: {}", figures.summary());
    if let Some(out) = setting("SIGHTLINE_SOAK_OUT") {
        figures.write(Path::new(&out));
    }
    // What one found is told behind the samples of all.
    ended.unwrap_or_else(|found| resume_unwind(found));
    load.delete_all();
    wait_until("no still is in the store", || world.stills() == 0);
    rest(&world);
    let after = world.sample();
    eprintln!("soak: before {before:?}\nsoak: after  {after:?}");

    assert!(after.descriptors <= before.descriptors + 8, "descriptors: {before:?} {after:?}");
    // Threads for blocking work take turns, so that a call a second keeps several of them: far fewer than there were runs.
    assert!(after.threads <= before.threads + 16, "threads: {before:?} {after:?}");
    assert!(after.children <= before.children, "children: {before:?} {after:?}");
    let stored = world.server.metric("service_stored_bytes");
    let disk = after.disk_kb as f64 * 1024.0;
    assert!(
        (stored - disk).abs() <= disk.mul_add(0.1, 24e6),
        "quotas count {stored} bytes, the disk has {disk}"
    );
    figures.judge(length);
    load.judge(length);
    world.survives_a_kill();
}

/// Waits until nothing is under way and nothing waits.
fn rest(world: &World) {
    for series in [
        "service_live_sessions",
        "service_live_workers",
        "service_event_streams",
        "service_inference_waiting{class=\"live\"}",
        "service_inference_waiting{class=\"offline\"}",
        "service_inference_in_flight{class=\"live\"}",
        "service_inference_in_flight{class=\"offline\"}",
        "service_object_store_unsent_files",
        "service_mirror_behind_events",
    ] {
        wait_until(series, || world.server.metric(series) == 0.0);
    }
    // Threads that wait for work end after ten seconds without any.
    std::thread::sleep(Duration::from_secs(12));
}
