//! Rebasing of times that restart in the parts of a joined source. Pure: times in, offsets out.

use media::Timebase;

/// Largest step back that is jitter: a tenth of a second, as in ffmpeg.
const BACK_MS: i64 = 100;
/// Largest gap that is a gap in the media, not a restart.
const AHEAD_MS: i64 = 10_000;

pub(crate) struct TimestampRebaser {
    back: i64,
    ahead: i64,
    offset: i64,
    /// Time at which the next packet is due.
    due: Option<i64>,
}

impl TimestampRebaser {
    /// Makes a rebaser for packets with times in `timebase`.
    pub(crate) fn new(timebase: Timebase) -> TimestampRebaser {
        let ticks = |ms: i64| {
            let (num, den) = (i128::from(timebase.num()), i128::from(timebase.den()));
            i64::try_from(i128::from(ms) * den / (num * 1000)).unwrap_or(i64::MAX)
        };
        TimestampRebaser { back: ticks(BACK_MS), ahead: ticks(AHEAD_MS), offset: 0, due: None }
    }

    /// Returns the offset for the times of the next packet in decode order.
    pub(crate) fn offset(&mut self, dts: Option<i64>, duration: i64) -> i64 {
        let Some(dts) = dts else { return self.offset };
        let mut at = dts.saturating_add(self.offset);
        if let Some(due) = self.due
            && !(due.saturating_sub(self.back)..=due.saturating_add(self.ahead)).contains(&at)
        {
            self.offset = due.saturating_sub(dts);
            at = due;
        }
        self.due = Some(at.saturating_add(duration.max(0)));
        self.offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_each_other() {
        let ms = Timebase::new(1, 1000).expect("positive");
        for (name, times, expected) in [
            ("one part", vec![5, 505, 1005], vec![5, 505, 1005]),
            ("jitter and a gap", vec![0, 440, 9_000, 9_430], vec![0, 440, 9_000, 9_430]),
            ("from the start again", vec![5, 505, 5, 505], vec![5, 505, 1005, 1505]),
            ("from elsewhere", vec![5, 505, 90_000, 90_500], vec![5, 505, 1005, 1505]),
            ("twice", vec![0, 500, 0, 99_000, 99_500], vec![0, 500, 1000, 1500, 2000]),
        ] {
            let mut continuity = TimestampRebaser::new(ms);
            let found: Vec<i64> = times
                .iter()
                .map(|&time: &i64| time.saturating_add(continuity.offset(Some(time), 500)))
                .collect();
            assert_eq!(found, expected, "{name}");
        }
        let mut hostile = TimestampRebaser::new(ms);
        for time in [i64::MIN, i64::MAX, 0, i64::MIN, i64::MAX] {
            hostile.offset(Some(time), i64::MAX);
        }
        assert_eq!(TimestampRebaser::new(ms).offset(None, 40), 0, "no time is left alone");
    }
}
