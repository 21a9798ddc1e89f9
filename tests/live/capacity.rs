//! The plans of `sightline capacity` against a simulated day: their nodes refuse nothing, and the book's table says how many would do.

mod fleet;

use std::{fs, path::Path, process::Command, time::Duration};

use serde_json::Value;

use crate::support::whip::sightline;
use fleet::{Day, Outcome, Proxy, Spec};

/// Days that a fleet has to get through, by their seeds.
const SEEDS: [u64; 3] = [1, 2, 3];
/// Memory budget of a server that is not told another.
const DEFAULT_BUDGET: u64 = 8 << 30;

/// A load: its name, and the options of `sightline capacity` that give it.
type Load = (&'static str, &'static [&'static str]);

/// The last is planned and simulated in a long test alone, and there each behind both proxies.
const LOADS: [Load; 4] = [
    ("100 cameras", &["--cameras", "100", "--hours", "0"]),
    ("1,000 cameras", &["--cameras", "1000", "--hours", "0"]),
    ("1,000,000 files a month", &["--cameras", "0", "--hours", "1000000", "--days", "30"]),
    ("10,000 cameras", &["--cameras", "10000", "--hours", "0"]),
];

/// The plan of a load, as the nodes of a day.
fn planned(sightline: &Path, options: &[&str], proxy: Proxy) -> Spec {
    let output = Command::new(sightline).args(["capacity", "--json"]).args(options).output();
    let plan: Value = serde_json::from_slice(&output.expect("it runs").stdout).expect("JSON");
    let given = |name: &str| plan["given"][name].as_f64().expect("a number");
    let line = |about: &str, what: &str| {
        let mut lines = plan["lines"].as_array().expect("lines").iter();
        let line = lines.find(|line| line["about"] == about && line["what"] == what);
        line.and_then(|line| line["value"].as_f64())
            .unwrap_or_else(|| panic!("no {what} of {about}"))
    };
    let (cameras, hours) = (given("cameras"), given("hours"));
    let about = if cameras > 0.0 { "cameras" } else { "files" };
    let work = if hours > 0.0 { line("files", "work") * 3600.0 / hours } else { 0.0 };
    let budget = match cameras > 0.0 {
        true => (line("cameras", "memory budget of a node") * f64::from(1 << 30)) as u64,
        false => DEFAULT_BUDGET,
    };
    Spec {
        proxy,
        nodes: line(about, "nodes") as usize,
        cameras: cameras as usize,
        files: (hours / given("days")) as u64,
        file_work: Duration::from_millis((work * 1000.0) as u64),
        memory_budget: budget,
        cores: given("cores") as usize,
    }
}

fn holds(spec: Spec) -> bool {
    SEEDS.iter().all(|&seed| Day::run(spec, seed, true).refused == 0)
}

/// The fewest nodes that get through the days.
fn fewest(mut spec: Spec) -> usize {
    while !holds(spec) {
        spec.nodes += 1;
    }
    while spec.nodes > 1 && holds(Spec { nodes: spec.nodes - 1, ..spec }) {
        spec.nodes -= 1;
    }
    spec.nodes
}

/// A row of the table in the book.
fn row(name: &str, spec: Spec) -> (String, Outcome) {
    let day = Day::run(spec, SEEDS[0], false);
    let without = match spec.nodes {
        1 => "no node".to_owned(),
        nodes => Day::run(Spec { nodes: nodes - 1, ..spec }, SEEDS[0], false).refused.to_string(),
    };
    let by_default = match spec.cameras {
        0 => String::new(),
        _ => fewest(Spec { memory_budget: DEFAULT_BUDGET, ..spec }).to_string(),
    };
    let proxy = match spec.proxy {
        Proxy::HaProxy => "HAProxy",
        Proxy::Nginx => "nginx",
    };
    let Outcome { asked, refused, busiest } = day;
    let (nodes, fewest) = (spec.nodes, fewest(spec));
    let row = format!(
        "| {name} | {proxy} | {nodes} | {refused} of {asked} | {busiest} | {without} | {fewest} | {by_default} |"
    );
    (row, day)
}

#[test]
fn planned_fleets_refuse_nothing_and_the_book_says_how_many_nodes_would_do() {
    let Some(sightline) = sightline() else { return };
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operate/capacity.md");
    let page = fs::read_to_string(page).expect("in the repository");
    let mut wrong = Vec::new();
    for (at, (name, options)) in LOADS[..clips::sized(3, 4)].iter().enumerate() {
        for &proxy in clips::in_turn(at, 1, &[Proxy::HaProxy, Proxy::Nginx]) {
            let (row, day) = row(name, planned(&sightline, options, proxy));
            println!("{row}");
            if day.refused > 0 {
                wrong.push(format!("refused by a planned fleet: {row}"));
            }
            if !page.contains(&row) {
                wrong.push(format!("not in docs/operate/capacity.md: {row}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
