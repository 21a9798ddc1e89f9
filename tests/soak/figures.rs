//! Resources of the server over time: taken, written, and held to what was promised.

use std::{
    path::Path,
    sync::Mutex,
    time::{Duration, Instant},
};

use serde::Serialize;
use serde_json::{Value, json};

use crate::soak::world::World;

/// Growth of memory that is none, kB an hour, once the server is warm.
const SLOPE_MAX: f64 = 1024.0;
/// Growth between the second and the last quarter of a run that is too short for a slope, kB.
const GROWTH_MAX: f64 = 32_768.0;

#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sample {
    pub memory_kb: u64,
    pub descriptors: usize,
    pub threads: usize,
    pub children: usize,
    pub disk_kb: u64,
    /// Of the log's index and the search index.
    pub index_kb: u64,
    pub health_ms: u64,
}

/// Samples with their times in seconds.
#[derive(Default)]
pub struct Figures(Mutex<Vec<(f64, Sample)>>);

impl Figures {
    /// Takes samples until `until`, some 1,000 of them, at least a second apart.
    pub fn take(&self, world: &World, until: Instant) {
        let started = Instant::now();
        let every = ((until - started) / 1000).max(Duration::from_secs(1));
        while Instant::now() < until {
            let sample = world.sample();
            let at = started.elapsed().as_secs_f64();
            self.0.lock().expect("no panic").push((at, sample));
            std::thread::sleep(every);
        }
    }

    fn samples(&self) -> Vec<(f64, Sample)> {
        self.0.lock().expect("no panic").clone()
    }

    /// Each figure's least, median and most.
    pub fn summary(&self) -> String {
        let samples: Vec<Value> = self.samples().iter().map(|(_, one)| json!(one)).collect();
        let of = |name: &String| {
            let mut values: Vec<u64> =
                samples.iter().filter_map(|sample| sample[name].as_u64()).collect();
            values.sort_unstable();
            let [least, median, most] =
                [0, values.len() / 2, values.len() - 1].map(|at| values[at]);
            format!("; {name} {least} {median} {most}")
        };
        let figures: String = samples[0].as_object().expect("figures").keys().map(of).collect();
        format!("{} samples{figures}", samples.len())
    }

    /// Memory does not grow: by its slope after the first quarter where `length` gives one, else between quarters.
    pub fn judge(&self, length: Duration) {
        let memory: Vec<(f64, f64)> = self
            .samples()
            .iter()
            .map(|(at, sample)| (at / 3600.0, sample.memory_kb as f64))
            .collect();
        let quarter = memory.len() / 4;
        let slope = slope(&memory[quarter..]);
        let growth = median(&memory[3 * quarter..]) - median(&memory[quarter..2 * quarter]);
        eprintln!(
            "soak: memory grew by {slope:.0} kB an hour, by {growth:.0} kB between the second and the last quarter"
        );
        if length >= Duration::from_secs(3600) {
            assert!(slope < SLOPE_MAX, "memory grows by {slope:.0} kB an hour");
        }
        assert!(growth < GROWTH_MAX, "memory grew by {growth:.0} kB");
    }

    pub fn write(&self, dir: &Path) {
        std::fs::create_dir_all(dir).expect("made");
        let samples = json!(self.samples()).to_string();
        std::fs::write(dir.join("samples.json"), samples).expect("written");
    }
}

/// Slope of the line through `points` with the least squares.
fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let (x, y) =
        points.iter().fold((0.0, 0.0), |sum, (x, y)| (sum.0 + x / count, sum.1 + y / count));
    let (above, below) = points.iter().fold((0.0, 0.0), |sum, (at, value)| {
        (sum.0 + (at - x) * (value - y), sum.1 + (at - x) * (at - x))
    });
    above / below
}

fn median(points: &[(f64, f64)]) -> f64 {
    let mut values: Vec<f64> = points.iter().map(|(_, value)| *value).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
