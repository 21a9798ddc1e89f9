//! Constructors of series, and families with one label that has a fixed set of values.

use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry,
    core::{Collector, MetricVec, MetricVecBuilder},
};

/// A label with a closed set of values.
pub trait Label: Copy + PartialEq + 'static {
    /// All values.
    const ALL: &'static [Self];

    /// Returns the label value as exposed.
    fn value(self) -> &'static str;
}

/// Defines label enums, each variant with its exposed value, or implements `Label` for existing named enums.
macro_rules! labels {
    ($($(#[$doc:meta])* pub enum $name:ident $body:tt)+) => {$(
        media::named! {
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub enum $name $body
        }

        labels!(of $name);
    )+};
    (of $($name:ident),*) => {$(
        impl $crate::base::metrics::Label for $name {
            const ALL: &'static [$name] = &$name::ALL;

            fn value(self) -> &'static str {
                self.as_str()
            }
        }
    )*};
}

pub(super) use labels;

/// One series for each value of a label.
pub struct Labelled<L, T>(Vec<(L, T)>);
/// One counter for each value of a label.
pub type Counters<L> = Labelled<L, IntCounter>;
/// One gauge for each value of a label.
pub type Gauges<L> = Labelled<L, IntGauge>;

impl<L: Label, T> Labelled<L, T> {
    fn of_family<B: MetricVecBuilder<M = T> + 'static>(
        registry: &Registry,
        family: prometheus::Result<MetricVec<B>>,
    ) -> Labelled<L, T> {
        let family = family.expect(VALID);
        let series = L::ALL.iter().map(|&each| (each, family.with_label_values(&[each.value()])));
        let series = Labelled(series.collect());
        register(registry, family);
        series
    }

    pub fn of(&self, label: L) -> &T {
        let found = self.0.iter().find(|(known, _)| *known == label);
        &found.expect("a label's list of values is complete").1
    }
}

impl<L: Label> Counters<L> {
    pub(super) fn new(registry: &Registry, name: &str, help: String, label: &str) -> Counters<L> {
        Labelled::of_family(registry, IntCounterVec::new(Opts::new(name, help), &[label]))
    }
}

impl<L: Label> Gauges<L> {
    pub(super) fn new(registry: &Registry, name: &str, help: String, label: &str) -> Gauges<L> {
        Labelled::of_family(registry, IntGaugeVec::new(Opts::new(name, help), &[label]))
    }
}

const VALID: &str = "the names of the table are valid";

pub(super) fn register(registry: &Registry, series: impl Collector + 'static) {
    registry.register(Box::new(series)).expect("the table names no series twice");
}

pub(super) fn counter(registry: &Registry, name: &str, help: String) -> IntCounter {
    let counter = IntCounter::new(name, help).expect(VALID);
    register(registry, counter.clone());
    counter
}

pub(super) fn gauge(registry: &Registry, name: &str, help: String) -> IntGauge {
    let gauge = IntGauge::new(name, help).expect(VALID);
    register(registry, gauge.clone());
    gauge
}

pub(super) fn histogram(registry: &Registry, name: &str, help: String, le: &[f64]) -> Histogram {
    let options = HistogramOpts::new(name, help).buckets(le.to_vec());
    let histogram = Histogram::with_opts(options).expect(VALID);
    register(registry, histogram.clone());
    histogram
}

/// Registers a family of counters, whose series begin when they are first counted.
pub(super) fn counters(
    registry: &Registry,
    name: &str,
    help: String,
    labels: &[&str],
) -> IntCounterVec {
    let family = IntCounterVec::new(Opts::new(name, help), labels).expect(VALID);
    register(registry, family.clone());
    family
}

/// Registers a family of histograms, whose series begin when they first observe.
pub(super) fn histograms(
    registry: &Registry,
    name: &str,
    help: String,
    le: &[f64],
    labels: &[&str],
) -> HistogramVec {
    let options = HistogramOpts::new(name, help).buckets(le.to_vec());
    let family = HistogramVec::new(options, labels).expect(VALID);
    register(registry, family.clone());
    family
}
