//! Once, twice and ten times what the server can do of every kind, all kinds at once.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use clips::sized;
use serde_json::{Value, json};

use crate::{
    overload::{
        generator::{Tally, arrivals, capacity},
        report::{figures, tell},
        tenant::{Kind, Tenant},
        world::{FLOODS, OWN_MAX, Peaks, World, flood},
    },
    support::whip::{Publication, clip, sightline},
};

/// Times what the server can do; the most of it again and again, to see what that leaves.
const LOADS: [&[f64]; 2] = [&[1.0, FLOOD], &[1.0, 2.0, FLOOD, FLOOD, FLOOD]];
/// Times what the server can do that are refused for the most part.
pub const FLOOD: f64 = 10.0;
/// Most runs for jobs that are made before a step, below what a principal may have; the others are made with their jobs.
const STOCK_MAX: usize = 900;
/// Jobs of a step at least: more than may be under way and waiting.
const JOBS_LEAST: f64 = 120.0;
/// Growth of memory from the load that the server can do to a flood, kB: what the allocator keeps of a burst.
const BURST_MAX: u64 = 131_072;
/// Growth by further floods, kB.
const GROWTH_MAX: u64 = 32_768;

/// A kind of work, who asks for it, and how much of it a second the server can do.
type Flow = (Kind, Arc<Tenant>, f64);

#[test]
fn beyond_its_capacity_the_server_refuses_early_and_does_what_it_took_on() {
    let Some(sightline) = sightline() else { return };
    let world = World::start();
    let flows: Vec<Flow> = Kind::ALL
        .iter()
        .zip(FLOODS)
        .map(|(kind, key)| {
            let tenant = world.tenant(key);
            let rate = can_do(&world, &tenant, *kind);
            eprintln!("overload: {rate:.1} {} a second", kind.name());
            (*kind, tenant, rate)
        })
        .collect();
    let mut rows = Vec::new();
    let mut memory = Vec::new();
    for load in sized(LOADS[0], LOADS[1]).iter().copied() {
        let clip = clip::scenes("ABC", 0);
        let publication = (load >= FLOOD)
            .then(|| Publication::start(&sightline, &world.server, &clip, &json!({}), &[]));
        let (tallies, health, peaks) = step(&world, &flows, load);
        if let Some(publication) = publication {
            let (run, _) = publication.finish();
            let kinds = world.server.kinds(&run);
            assert_eq!(kinds.last().map(String::as_str), Some("run_completed"), "{kinds:?}");
        }
        rows.extend(
            flows.iter().zip(&tallies).map(|((kind, ..), tally)| row(load, kind.name(), tally)),
        );
        rows.push(row(load, "health", &health));
        for (kind, tally) in Kind::ALL.iter().zip(&tallies) {
            let name = format!("{load} times {}", kind.name());
            assert_eq!(tally.wrong, Vec::<String>::new(), "{name}");
            assert!(!tally.taken.is_empty(), "{name}: nothing was taken on");
            assert!(load < FLOOD || !tally.refused.is_empty(), "{name}: nothing was refused");
        }
        assert_eq!((health.refused.len(), health.wrong), (0, Vec::new()), "{load} times");
        assert!(health.unsent == 0 && !health.taken.is_empty(), "{load} times: {}", health.unsent);
        let finished: usize =
            flows.iter().map(|(_, tenant, _)| world.runtime.block_on(tenant.finished())).sum();
        world.judge(&peaks);
        memory.push((load, peaks, finished, world.rest()));
    }
    tell("steps", &rows);
    let memories: Vec<Value> = memory.iter().map(|(load, peaks, finished, after)| {
        json!({"load": load, "finished": finished, "memory_after_kb": after, "most": peaks})
    }).collect();
    tell("memory", &memories);
    let after: Vec<u64> = memory.iter().map(|(.., after)| *after).collect();
    let flooded = memory.iter().position(|(load, ..)| *load >= FLOOD).expect("a flood");
    assert!(after[flooded] <= after[0] + BURST_MAX, "{after:?} kB");
    assert!(after[after.len() - 1] <= after[flooded] + GROWTH_MAX, "{after:?} kB");
}

/// Turns of a kind that the server can do in a second.
pub fn can_do(world: &World, tenant: &Arc<Tenant>, kind: Kind) -> f64 {
    let (length, kind) =
        (sized(Duration::from_millis(400), Duration::from_secs(5)), kind.waited_for());
    world.runtime.block_on(async {
        if kind == Kind::Ingest {
            tenant.stock(sized(100, 600)).await;
        }
        let own = Arc::clone(tenant);
        let rate =
            capacity(OWN_MAX, length, move |number, due| Arc::clone(&own).turn(kind, number, due));
        let rate = rate.await;
        tenant.finished().await;
        rate
    })
}

/// Times at which requests of `kind` are due for `length`, `load` times `rate` a second; of a flood of jobs at least as
/// many as fill their queue.
pub fn due(kind: Kind, rate: f64, load: f64, length: Duration, round: u64) -> Vec<Duration> {
    let rate = load * rate;
    let fills = if kind == Kind::Job && load >= FLOOD { JOBS_LEAST / rate } else { 0.0 };
    arrivals(rate, length.max(Duration::from_secs_f64(fills)), 100 * round + kind as u64)
}

/// All flows at `load` times what the server can do.
fn step(world: &World, flows: &[Flow], load: f64) -> (Vec<Tally>, Tally, Peaks) {
    let length = sized(Duration::from_secs(1), Duration::from_secs(20));
    let times: Vec<_> =
        flows.iter().map(|(kind, _, rate)| due(*kind, *rate, load, length, 1)).collect();
    world.runtime.block_on(async {
        for ((kind, tenant, _), times) in flows.iter().zip(&times) {
            if *kind == Kind::Job {
                tenant.stock(times.len().min(STOCK_MAX)).await;
            }
        }
        let last = times.iter().filter_map(|times| times.last()).max().copied();
        let until = Instant::now() + last.unwrap_or(length);
        let all = async {
            let mut floods = Vec::new();
            for ((kind, tenant, _), times) in flows.iter().zip(&times) {
                let (kind, tenant, times) = (*kind, Arc::clone(tenant), times.clone());
                floods.push(tokio::spawn(async move { flood(&tenant, kind, &times).await }));
            }
            let mut tallies = Vec::new();
            for flood in floods {
                tallies.push(flood.await.expect("no panic"));
            }
            tallies
        };
        let both = async { tokio::join!(all, world.probe(until)) };
        let ((tallies, health), peaks) = world.watch(both).await;
        (tallies, health, peaks)
    })
}

fn row(load: f64, kind: &str, tally: &Tally) -> Value {
    let mut row = figures(tally);
    row["kind"] = json!(kind);
    row["load"] = json!(load);
    row
}
