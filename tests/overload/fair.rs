//! A principal that asks for little, alone and beside one that asks for ten times what the server can do.

use std::{sync::Arc, time::Duration};

use clips::sized;
use serde_json::json;

use crate::overload::{
    generator::{Tally, arrivals, quantile_ms},
    report::{figures, tell},
    steps::{FLOOD, can_do, due},
    tenant::{Kind, Tenant},
    world::{FLOODS, STEADY, World, flood},
};

/// Share of what the server can do that the steady principal asks for.
const SHARE: f64 = 0.2;
/// Length of a round: what the steady principal asks for in it is within its own limits, also where all of it comes at once.
const ROUND: Duration = Duration::from_secs(1);
/// Share of what it is given alone that it is given beside the flood.
const KEPT: f64 = 0.9;

#[test]
fn the_flood_of_one_principal_costs_another_little() {
    let world = World::start();
    let (steady, mut rows, mut shares) = (world.tenant(STEADY), Vec::new(), Vec::new());
    // The queue of jobs takes seconds of the processor to drain: in short tests/api/charges.rs has them.
    let kinds = Kind::ALL.into_iter().zip(FLOODS);
    for (kind, key) in kinds.filter(|(kind, _)| *kind != Kind::Job || sized(false, true)) {
        let flooding = world.tenant(key);
        let rate = can_do(&world, &flooding, kind);
        let (mut alone, mut beside) = (Tally::default(), Tally::default());
        for round in 0..sized(1, 10) {
            alone.add(given(&world, &steady, kind, rate, round, None));
            beside.add(given(&world, &steady, kind, rate, round, Some(&flooding)));
        }
        let kept = beside.taken.len() as f64 / alone.taken.len() as f64;
        for (name, tally) in [("alone", &alone), ("beside a flood", &beside)] {
            let mut row = figures(tally);
            row["kind"] = json!(kind.waited_for().name());
            row["where"] = json!(name);
            rows.push(row);
            assert_eq!(tally.wrong, Vec::<String>::new(), "{} {name}", kind.name());
        }
        let slower = quantile_ms(&beside.taken, 0.99) / quantile_ms(&alone.taken, 0.99);
        eprintln!("overload: {}: {kept:.3} of the throughput, {slower:.1} of the p99", kind.name());
        shares.push((kind.name(), kept));
    }
    tell("fair", &rows);
    assert!(shares.iter().all(|(_, kept)| *kept >= KEPT), "of what it is given alone: {shares:?}");
}

/// Outcomes of the steady principal's requests in a round, alone or beside a flood; all that both were given is finished
/// then.
fn given(
    world: &World,
    steady: &Arc<Tenant>,
    kind: Kind,
    rate: f64,
    round: u64,
    flooding: Option<&Arc<Tenant>>,
) -> Tally {
    let own = arrivals(SHARE * rate, ROUND, round + 1);
    let others = due(kind, rate, FLOOD, ROUND, round + 1);
    let tally = world.runtime.block_on(async {
        if kind == Kind::Job {
            steady.stock(own.len()).await;
        }
        let Some(flooding) = flooding else {
            return flood(steady, kind.waited_for(), &own).await;
        };
        if kind == Kind::Job {
            flooding.stock(others.len().min(300)).await;
        }
        let (tally, _) =
            tokio::join!(flood(steady, kind.waited_for(), &own), flood(flooding, kind, &others));
        flooding.finished().await;
        tally
    });
    world.runtime.block_on(steady.finished());
    world.settle();
    tally
}
