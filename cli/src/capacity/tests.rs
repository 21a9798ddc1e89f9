//! Compares the plan with figures computed by hand.

use clap::Parser;

use super::{FleetArgs, plan};

#[derive(Parser)]
struct Given {
    #[command(flatten)]
    fleet: FleetArgs,
}

fn given(options: &[&str]) -> FleetArgs {
    Given::parse_from([&["capacity"], options].concat()).fleet
}

#[test]
fn lines_are_the_products_that_they_show() {
    let frugal = ["--fps", "10", "--frame-ms", "0.89", "--cores", "10", "--load", "50"];
    let few = ["--cameras", "100", "--hours", "1000", "--days", "1", "--sampled", "1"];
    let rows: [(&[&str], &str, &str, f64); 9] = [
        (&[], "cameras", "cores", 10_000.0 * 25.0 * 3.01 / 1000.0),
        (&[], "cameras", "nodes", 34.0),
        (&[], "cameras", "stills", 10_000.0 * 636.0 / 3600.0),
        (&["--height", "1080"], "cameras", "video in", 40.0),
        (&frugal, "cameras", "cores", 100.0),
        (&frugal, "cameras", "nodes", 20.0),
        (&few, "files", "frames", 0.0036),
        (&few, "files", "nodes", 1.0),
        (&few, "files", "Ray's work", 1000.0 * 20.0 / 3.6e6),
    ];
    for (options, about, what, expected) in rows {
        let given = given(options);
        let lines = [plan::cameras(&given), plan::archive(&given)].concat();
        let line = lines.iter().find(|line| (line.about, line.what) == (about, what));
        let value = line.unwrap_or_else(|| panic!("no {what} of {about}")).value;
        assert!(
            (value / expected - 1.0).abs() < 1e-9,
            "{options:?} {what}: {value}, not {expected}"
        );
    }
}

#[test]
fn what_is_nearest_to_its_end_comes_first() {
    let shared = plan::shared(&given(&[]));
    assert!(shared.is_sorted_by(|one, other| one.at[0] >= other.at[0]), "{shared:?}");
    assert!(shared.iter().all(|one| one.at[2] > one.at[1] && one.at[1] > one.at[0]), "{shared:?}");
}

#[test]
fn figures_have_the_digits_that_count() {
    let rows = [
        (0.0123, "0.012"),
        (1.0, "1"),
        (2.345, "2.35"),
        (12.0, "12"),
        (123.4, "123"),
        (1_234_567.0, "1,234,567"),
    ];
    for (value, expected) in rows {
        assert_eq!(plan::figure(value), expected);
    }
}
