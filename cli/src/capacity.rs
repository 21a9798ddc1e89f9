//! `sightline capacity`: computes the machines, disks and traffic of a fleet, and shows the arithmetic.
//!
//! Starts from the figures in benches/BASELINE.md, measured on two cores of a virtual machine; `sightline
//! bench capacity` measures other machines. Prices and the descriptions per second of a model are
//! assumptions. docs/operate/capacity.md explains the result.

mod plan;
#[cfg(test)]
mod tests;

use serde::Serialize;
use serde_json::json;

use crate::{
    error::CliError,
    output::{StdoutWriter, TextTable},
};
use plan::{archive, cameras, shared};

#[derive(clap::Args, Clone, Debug, Serialize)]
pub struct FleetArgs {
    /// Cameras that are recorded at all times
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    cameras: u64,
    /// Hours of recorded files to analyse
    #[arg(long, value_name = "N", default_value_t = 10_000_000)]
    hours: u64,
    /// Days in which the files are analysed
    #[arg(long, value_name = "N", default_value_t = 90.0, value_parser = positive)]
    days: f64,
    /// Rows of a picture, for which frames, stills and bit rates are looked up
    #[arg(long, value_name = "ROWS", default_value = "720", value_parser = ["360", "720", "1080"])]
    height: String,
    /// Frames a second of a camera and of the files
    #[arg(long, value_name = "RATE", default_value_t = 25.0, value_parser = positive)]
    fps: f64,
    /// Frames a second that are analysed of the files [default: all]
    #[arg(long, value_name = "RATE", value_parser = positive)]
    sampled: Option<f64>,
    /// Milliseconds of a core for a frame: ms_per_frame of `sightline bench capacity` [default: as measured]
    #[arg(long, value_name = "MS", value_parser = positive)]
    frame_ms: Option<f64>,
    /// Stills that the gate keeps of an hour: 2036 with mode balanced, 636 with efficiency
    #[arg(long, value_name = "N", default_value_t = 636.0, value_parser = positive)]
    stills: f64,
    /// Kilobytes of a still [default: as measured]
    #[arg(long, value_name = "KB", value_parser = positive)]
    still_kb: Option<f64>,
    /// Part of the stills that a model is asked about, in percent
    #[arg(long, value_name = "PCT", default_value_t = 10.0, value_parser = positive)]
    described: f64,
    /// Descriptions a second of a GPU that serves models
    #[arg(long, value_name = "N", default_value_t = 10.0, value_parser = positive)]
    gpu_descriptions: f64,
    /// Days for which recordings and stills are kept
    #[arg(long, value_name = "N", default_value_t = 30.0, value_parser = positive)]
    retention: f64,
    /// Cores of a node
    #[arg(long, value_name = "N", default_value_t = 32.0, value_parser = positive)]
    cores: f64,
    /// Part of a node's cores that is planned for, in percent
    #[arg(long, value_name = "PCT", default_value_t = 70.0, value_parser = positive)]
    load: f64,
    /// Price of a core for an hour
    #[arg(long, value_name = "PRICE", default_value_t = 0.03, value_parser = positive)]
    core_price: f64,
    /// Price of a GPU for an hour
    #[arg(long, value_name = "PRICE", default_value_t = 2.0, value_parser = positive)]
    gpu_price: f64,
    /// Price of a terabyte in the store for a month
    #[arg(long, value_name = "PRICE", default_value_t = 23.0, value_parser = positive)]
    terabyte_price: f64,
    /// Print one JSON object: given, lines[{about, what, arithmetic, value, unit}], shared[{what, arithmetic, most, at[]}]
    #[arg(long)]
    #[serde(skip)]
    json: bool,
}

fn positive(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if value.is_finite() && value > 0.0 { Ok(value) } else { Err("must be above 0".to_owned()) }
}

pub fn run(args: &FleetArgs) -> Result<(), CliError> {
    // Of no cameras, or no hours, there is no average.
    let cameras = if args.cameras > 0 { cameras(args) } else { Vec::new() };
    let archive = if args.hours > 0 { archive(args) } else { Vec::new() };
    let lines = [cameras, archive].concat();
    let shared = shared(args);
    let mut out = StdoutWriter::stdout();
    if args.json {
        out.json(&json!({ "given": args, "lines": lines, "shared": shared }))?;
        return out.finish();
    }
    let rows = lines.iter().map(|line| {
        let value = plan::figure(line.value);
        [line.about, line.what, &value, line.unit, &line.arithmetic].map(str::to_owned)
    });
    let columns = ["ABOUT", "WHAT", ">VALUE", "UNIT", "ARITHMETIC"];
    out.table(&TextTable::of(columns, rows))?;
    out.line("")?;
    let rows = shared.iter().map(|one| {
        let [now, ten, hundred] = one.at.map(|part| format!("{}%", plan::figure(part * 100.0)));
        let most = plan::figure(one.most);
        [one.what.to_owned(), most, now, ten, hundred, one.arithmetic.clone()]
    });
    let columns = ["ALL SHARE", ">MOST", ">NOW", ">10 TIMES", ">100 TIMES", "ARITHMETIC"];
    out.table(&TextTable::of(columns, rows))?;
    out.finish()
}
