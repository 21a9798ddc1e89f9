//! Arrivals by a clock: each request is sent when it is due, and its latency counts from then on, whatever became of
//! those before it.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::overload::client::{Answer, Turn};

/// Requests of one kind that may wait for their answers; one that is due then has failed.
pub const OUTSTANDING_MAX: usize = 8192;

/// `rate` arrivals a second for `length`, with the gaps of a Poisson process; the same for the same seed.
pub fn arrivals(rate: f64, length: Duration, seed: u64) -> Vec<Duration> {
    let mut random = fastrand::Rng::with_seed(seed);
    let gaps = std::iter::repeat_with(move || -(1.0 - random.f64()).ln() / rate);
    let times = gaps.scan(0.0, |at, gap| {
        *at += gap;
        Some(Duration::from_secs_f64(*at))
    });
    times.take_while(|at| *at < length).collect()
}

/// Outcomes of the requests of one kind.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Times from when they were due to their answers.
    pub taken: Vec<Duration>,
    pub refused: Vec<Duration>,
    pub wrong: Vec<String>,
    /// Times from when a request was due to its turn: what the client itself is behind.
    pub late: Vec<Duration>,
    /// Requests that were due when [`OUTSTANDING_MAX`] others had no answer.
    pub unsent: usize,
    /// The most that waited for their answers at once.
    pub outstanding: usize,
}

impl Tally {
    pub fn due(&self) -> usize {
        self.taken.len() + self.refused.len() + self.wrong.len() + self.unsent
    }

    pub fn add(&mut self, other: Tally) {
        self.taken.extend(other.taken);
        self.refused.extend(other.refused);
        self.wrong.extend(other.wrong);
        self.late.extend(other.late);
        self.unsent += other.unsent;
        self.outstanding = self.outstanding.max(other.outstanding);
    }

    fn count(&mut self, turn: Turn) {
        match turn.answer {
            Answer::Taken => self.taken.push(turn.after),
            Answer::Refused => self.refused.push(turn.after),
            Answer::Wrong(what) => self.wrong.push(what),
        }
    }
}

/// The time below which a `share` of `times` is, in milliseconds; 0 of none.
pub fn quantile_ms(times: &[Duration], share: f64) -> f64 {
    let mut times = times.to_vec();
    times.sort_unstable();
    let place = (times.len().saturating_sub(1) as f64 * share).round() as usize;
    times.get(place).map_or(0.0, |time| time.as_secs_f64() * 1e3)
}

/// Takes a turn at each of `times`, and waits for the end of all.
pub async fn open_loop<T>(times: &[Duration], turn: impl Fn(usize, Instant) -> T) -> Tally
where
    T: Future<Output = Turn> + Send + 'static,
{
    let (mut turns, mut tally) = (JoinSet::new(), Tally::default());
    let started = Instant::now();
    for (number, at) in times.iter().enumerate() {
        let due = started + *at;
        tokio::time::sleep_until(due.into()).await;
        tally.late.push(due.elapsed());
        while let Some(turn) = turns.try_join_next() {
            tally.count(turn.expect("no panic"));
        }
        if turns.len() == OUTSTANDING_MAX {
            tally.unsent += 1;
            continue;
        }
        turns.spawn(turn(number, due));
        tally.outstanding = tally.outstanding.max(turns.len());
    }
    while let Some(turn) = turns.join_next().await {
        tally.count(turn.expect("no panic"));
    }
    tally
}

/// Turns a second that `lanes` take of which each begins when the one before it has ended, after a warm-up of `length`
/// and for as long.
pub async fn capacity<T>(
    lanes: usize,
    length: Duration,
    turn: impl Fn(usize, Instant) -> T + Clone + Send + 'static,
) -> f64
where
    T: Future<Output = Turn> + Send,
{
    let begin = Instant::now() + length;
    let mut rates = JoinSet::new();
    for lane in 0..lanes {
        let turn = turn.clone();
        rates.spawn(async move {
            let (mut taken, mut last, mut number) = (0_u32, Instant::now(), lane);
            while last < begin + length || taken == 0 {
                let answer = turn(number, last).await.answer;
                last = Instant::now();
                number += 1;
                match answer {
                    Answer::Taken => taken += u32::from(last >= begin),
                    Answer::Refused => tokio::time::sleep(Duration::from_millis(20)).await,
                    other => panic!("{other:?}"),
                }
            }
            f64::from(taken) / (last - begin).as_secs_f64()
        });
    }
    rates.join_all().await.iter().sum()
}
