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
        let family = registered(registry, family);
        let series = L::ALL.iter().map(|&each| (each, family.with_label_values(&[each.value()])));
        Labelled(series.collect())
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

pub(super) fn registered<C: Collector + Clone + 'static>(
    registry: &Registry,
    series: prometheus::Result<C>,
) -> C {
    let series = series.expect("the names of the table are valid");
    registry.register(Box::new(series.clone())).expect("the table names no series twice");
    series
}

pub(super) fn counter(registry: &Registry, name: &str, help: String) -> IntCounter {
    registered(registry, IntCounter::new(name, help))
}

pub(super) fn gauge(registry: &Registry, name: &str, help: String) -> IntGauge {
    registered(registry, IntGauge::new(name, help))
}

pub(super) fn histogram(registry: &Registry, name: &str, help: String, le: &[f64]) -> Histogram {
    registered(registry, Histogram::with_opts(buckets(name, help, le)))
}

fn buckets(name: &str, help: String, le: &[f64]) -> HistogramOpts {
    HistogramOpts::new(name, help).buckets(le.to_vec())
}

/// Registers a family of counters, whose series begin when they are first counted.
pub(super) fn counters(
    registry: &Registry,
    name: &str,
    help: String,
    labels: &[&str],
) -> IntCounterVec {
    registered(registry, IntCounterVec::new(Opts::new(name, help), labels))
}

/// Registers a family of gauges, whose series begin when they are first set.
pub(super) fn gauges(
    registry: &Registry,
    name: &str,
    help: String,
    labels: &[&str],
) -> IntGaugeVec {
    registered(registry, IntGaugeVec::new(Opts::new(name, help), labels))
}

/// Registers a family of histograms, whose series begin when they first observe.
pub(super) fn histograms(
    registry: &Registry,
    name: &str,
    help: String,
    le: &[f64],
    labels: &[&str],
) -> HistogramVec {
    registered(registry, HistogramVec::new(buckets(name, help, le), labels))
}
