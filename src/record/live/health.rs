//! Health of a live session: figures of the last seconds, one word for them, and the rule behind the word.
//!
//! Pure: callers pass samples and `now`.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use transport::webrtc::SessionStats;

use super::{LOST_AFTER, session_events::Pictures};

/// Interval between samples.
pub const EVERY: Duration = Duration::from_secs(1);
/// Maximum number of samples kept: figures cover the last five seconds.
const SAMPLES: usize = 5;
/// Time without a packet after which a session counts as silent.
const SILENT: Duration = Duration::from_secs(5);
/// Bounds from which a figure is no longer good; at `FAR_OVER` times its bound it is poor.
const LOST_PERCENT: f64 = 1.0;
const JITTER: Duration = Duration::from_millis(30);
const BEHIND: Duration = Duration::from_secs(1);
const FAR_OVER: f64 = 5.0;

media::named! {
    /// Health of a session, in one word.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Word {
        /// No figure is over its bound.
        Good = "good",
        /// One figure is over its bound.
        Fair = "fair",
        /// Several figures are over their bounds, or one is far over.
        Poor = "poor",
        /// No packets arrive.
        Silent = "silent",
    }
}

/// Counters of a session at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub at: Instant,
    pub packets: SessionStats,
    pub pictures: Pictures,
}

/// Figures of the last seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Health {
    pub window: Duration,
    /// Packets that did not arrive when sent, in percent; most are retransmitted in time.
    pub lost_percent: f64,
    /// Packets that never arrived.
    pub given_up: u64,
    pub jitter: Duration,
    /// Bit rate of video, retransmissions included.
    pub bits_per_second: u64,
    /// Rate of the frames that the gate decided about.
    pub frames_per_second: f64,
    /// Time from the last packet of a picture to its decision.
    pub behind: Duration,
    /// Access units dropped because a queue was full, and those that depend on them.
    pub dropped: u64,
    /// Access units that failed to decode.
    pub damaged: u64,
    /// Stills, frames for models and clips dropped because a queue was full.
    pub unkept: u64,
    /// Time since the last packet; `None` before the first.
    pub since_packet: Option<Duration>,
    /// Time since the last complete access unit; `None` before the first.
    pub since_picture: Option<Duration>,
    pub word: Word,
    /// Rule behind the word, and the remedy.
    pub rule: String,
}

#[derive(Debug, Default)]
pub struct Samples(VecDeque<Sample>);

impl Samples {
    /// Adds a sample, and drops the oldest one over the limit.
    pub fn add(&mut self, sample: Sample) {
        if self.0.len() == SAMPLES {
            self.0.pop_front();
        }
        self.0.push_back(sample);
    }

    pub fn health(&self, now: Sample) -> Health {
        let first = self.0.front().copied().unwrap_or(now);
        let window = now.at.saturating_duration_since(first.at);
        let (packets, pictures) = (now.packets, now.pictures);
        let since = |at: Option<Instant>| at.map(|at| now.at.saturating_duration_since(at));
        let more = u64::saturating_sub;
        let a_second = |count: u64| {
            if window.is_zero() { 0.0 } else { count as f64 / window.as_secs_f64() }
        };
        let given_up = more(packets.lost, first.packets.lost);
        let missing = given_up + more(packets.repaired, first.packets.repaired);
        let sent = more(packets.packets, first.packets.packets) + given_up;
        let mut health = Health {
            window,
            lost_percent: if sent == 0 { 0.0 } else { 100.0 * missing as f64 / sent as f64 },
            given_up,
            jitter: packets.jitter,
            bits_per_second: a_second(8 * more(packets.bytes, first.packets.bytes)) as u64,
            frames_per_second: a_second(more(pictures.decided, first.pictures.decided)),
            behind: pictures.behind,
            dropped: more(pictures.dropped, first.pictures.dropped),
            damaged: more(pictures.damaged, first.pictures.damaged),
            unkept: more(pictures.unkept, first.pictures.unkept),
            since_packet: since(packets.packet_at),
            since_picture: since(pictures.came_at),
            word: Word::Good,
            rule: String::new(),
        };
        (health.word, health.rule) = word(&health);
        health
    }
}

/// Returns the word for these figures and the rule behind it.
fn word(health: &Health) -> (Word, String) {
    let dropped_after = LOST_AFTER.as_secs();
    match health.since_packet {
        None => {
            return (
                Word::Silent,
                "no picture has come yet: the publisher has to connect and send".to_owned(),
            );
        }
        Some(since) if since >= SILENT => {
            let seconds = since.as_secs();
            let rule = format!(
                "nothing has arrived for {seconds} s; the session is dropped after {dropped_after} s: \
                 look at the publisher and its network"
            );
            return (Word::Silent, rule);
        }
        Some(_) => {}
    }
    let figures = figures(health);
    let over: Vec<_> = figures.iter().filter(|(times, ..)| *times >= 1.0).collect();
    let said =
        |with_remedy: bool| {
            let parts = over.iter().map(|(_, what, remedy)| {
                if with_remedy { format!("{what}: {remedy}") } else { what.clone() }
            });
            parts.collect::<Vec<_>>().join("; ")
        };
    match over[..] {
        [] => (
            Word::Good,
            format!(
                "lost is below {LOST_PERCENT} %, jitter below {} ms, decoding less than {} s behind",
                JITTER.as_millis(),
                BEHIND.as_secs()
            ),
        ),
        [(times, ..)] if *times < FAR_OVER => (Word::Fair, said(false)),
        _ => (Word::Poor, said(true)),
    }
}

/// Returns each figure as a multiple of its bound, its description and the remedy.
fn figures(health: &Health) -> [(f64, String, &'static str); 3] {
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    [
        (
            health.lost_percent / LOST_PERCENT,
            format!(
                "{:.1} % of packets are lost, which is not below {LOST_PERCENT} %",
                health.lost_percent
            ),
            "send at a lower bit rate, or over a wired network",
        ),
        (
            millis(health.jitter) / millis(JITTER),
            format!(
                "jitter is {:.0} ms, which is not below {} ms",
                millis(health.jitter),
                JITTER.as_millis()
            ),
            "use a wired network, or one with less traffic",
        ),
        (
            millis(health.behind) / millis(BEHIND),
            format!(
                "decoding is {:.1} s behind, which is not below {} s",
                health.behind.as_secs_f64(),
                BEHIND.as_secs()
            ),
            "send smaller pictures or fewer a second, or give the server fewer sessions",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Packets, repaired packets, lost packets, jitter in ms, decoding delay in ms.
    type Second = (u64, u64, u64, u64, u64);

    const EVEN: Second = (100, 0, 0, 5, 40);

    fn health(seconds: &[Second], silent: Duration) -> Health {
        let start = Instant::now();
        let (mut samples, mut sample) = (
            Samples::default(),
            Sample { at: start, packets: SessionStats::default(), pictures: Pictures::default() },
        );
        samples.add(sample);
        for (packets, repaired, lost, jitter, behind) in seconds {
            sample.at += SECOND;
            sample.packets.packets += packets;
            sample.packets.bytes += packets * 1000;
            sample.packets.repaired += repaired;
            sample.packets.lost += lost;
            sample.packets.jitter = Duration::from_millis(*jitter);
            sample.packets.packet_at = Some(sample.at);
            sample.pictures.decided += 25;
            sample.pictures.behind = Duration::from_millis(*behind);
            samples.add(sample);
        }
        sample.at += silent;
        samples.health(sample)
    }

    #[test]
    fn a_word_follows_from_the_figures_and_says_why() {
        let rows: [(&str, &[Second], u32, Word, &str); 11] = [
            ("not yet connected", &[], 0, Word::Silent, "has to connect"),
            ("an even path", &[EVEN; 9], 0, Word::Good, "lost is below 1 %"),
            ("just below", &[(1000, 9, 0, 29, 999); 5], 0, Word::Good, "below 30 ms"),
            (
                "losses that were repaired",
                &[(100, 2, 0, 5, 40); 5],
                0,
                Word::Fair,
                "2.0 % of packets",
            ),
            ("losses that were not", &[(98, 0, 2, 5, 40); 5], 0, Word::Fair, "2.0 % of packets"),
            ("jitter", &[(100, 0, 0, 30, 40); 5], 0, Word::Fair, "jitter is 30 ms"),
            ("a busy server", &[(100, 0, 0, 5, 1500); 5], 0, Word::Fair, "1.5 s behind"),
            ("by far", &[(100, 0, 0, 5, 5000); 5], 0, Word::Poor, "smaller pictures"),
            ("two at once", &[(100, 2, 0, 40, 40); 5], 0, Word::Poor, "bit rate"),
            ("almost silent", &[EVEN; 5], 4, Word::Good, "lost"),
            (
                "silent",
                &[EVEN; 5],
                6,
                Word::Silent,
                "nothing has arrived for 6 s; the session is dropped after 10 s",
            ),
        ];
        for (name, seconds, silent, word, rule) in rows {
            let found = health(seconds, SECOND * silent);
            assert_eq!(found.word, word, "{name}: {found:?}");
            assert!(found.rule.contains(rule), "{name}: {}", found.rule);
        }
    }

    #[test]
    fn figures_are_of_the_last_seconds_and_not_of_the_start() {
        let bad = (50, 0, 50, 200, 3000);
        let found = health(&[bad, bad, bad, EVEN, EVEN, EVEN, EVEN], Duration::ZERO);
        assert_eq!((found.window, found.given_up, found.lost_percent), (SECOND * 4, 0, 0.0));
        assert_eq!((found.bits_per_second, found.frames_per_second), (800_000, 25.0));
        assert_eq!(found.word, Word::Good, "{}", found.rule);
        assert_eq!(found.since_packet, Some(Duration::ZERO));
    }
}
