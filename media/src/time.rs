//! Exact media time (ticks of a rational timebase) and wall time, as separate types.
//!
//! Milliseconds appear only at the system boundary; see `Timestamp::as_millis`.

use std::{cmp::Ordering, ops::RangeInclusive};

use serde::{Deserialize, Serialize};

/// Seconds per tick as a fraction; both parts are positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Timebase {
    num: u32,
    den: u32,
}

crate::serde_checked!(Timebase, |base| base.num > 0 && base.den > 0);

impl Timebase {
    /// One tick per millisecond.
    pub const MILLIS: Timebase = Timebase { num: 1, den: 1000 };
    /// The 90 kHz clock of RTP video and MPEG systems.
    pub const RTP_VIDEO: Timebase = Timebase { num: 1, den: 90_000 };

    /// Creates a timebase of `num/den` seconds per tick; `None` if either is zero.
    pub fn new(num: u32, den: u32) -> Option<Timebase> {
        (num > 0 && den > 0).then_some(Timebase { num, den })
    }

    /// Returns the numerator of the seconds per tick.
    pub fn num(self) -> u32 {
        self.num
    }

    /// Returns the denominator of the seconds per tick.
    pub fn den(self) -> u32 {
        self.den
    }
}

/// Point in media time: `ticks` of `timebase`, compared exactly across timebases.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Timestamp {
    /// Signed number of ticks; negative before the stream's zero (edit lists, priming).
    pub ticks: i64,
    /// Length of a tick.
    pub timebase: Timebase,
}

impl Timestamp {
    /// Creates the timestamp of `ticks` of `timebase`.
    pub fn new(ticks: i64, timebase: Timebase) -> Timestamp {
        Timestamp { ticks, timebase }
    }

    /// Creates a timestamp from whole milliseconds.
    pub fn from_millis(ms: i64) -> Timestamp {
        Timestamp::new(ms, Timebase::MILLIS)
    }

    /// Returns the nearest whole millisecond, halves away from zero; saturates at the ends of `i64`.
    pub fn as_millis(self) -> i64 {
        self.ticks_of(Timebase::MILLIS)
    }

    /// Returns the nearest whole tick of `timebase`, halves away from zero; saturates at the ends of `i64`.
    pub fn ticks_of(self, timebase: Timebase) -> i64 {
        let (from, to) = (self.timebase, timebase);
        let product = |a: u32, b: u32| i128::from(a) * i128::from(b);
        // The product fits into i128; doubling it saturates only beyond 2^61 ticks.
        let num = i128::from(self.ticks).saturating_mul(product(from.num, to.den));
        let den = product(from.den, to.num);
        let half = if num < 0 { -den } else { den };
        let rounded = num.saturating_mul(2).saturating_add(half) / (2 * den);
        rounded.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
    }

    /// Compares exactly with the instant `k / rate` seconds after zero.
    pub fn cmp_sample_instant(self, k: u64, rate: FrameRate) -> Ordering {
        // ticks * num / den  <=>  k * rate.den / rate.num
        let left = i128::from(self.ticks) * i128::from(self.timebase.num) * i128::from(rate.num());
        let right = i128::from(k) * i128::from(rate.den()) * i128::from(self.timebase.den);
        left.cmp(&right)
    }
}

impl PartialEq for Timestamp {
    fn eq(&self, other: &Timestamp) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Timestamp {}

impl PartialOrd for Timestamp {
    fn partial_cmp(&self, other: &Timestamp) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timestamp {
    fn cmp(&self, other: &Timestamp) -> Ordering {
        let scale = |a: &Timestamp, b: &Timestamp| {
            i128::from(a.ticks) * i128::from(a.timebase.num) * i128::from(b.timebase.den)
        };
        scale(self, other).cmp(&scale(other, self))
    }
}

/// Frames per second as a fraction; both parts are positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct FrameRate {
    num: u32,
    den: u32,
}

crate::serde_checked!(FrameRate, |rate| FrameRate::new(rate.num, rate.den) == Some(rate));

impl FrameRate {
    /// One frame per second.
    pub const ONE: FrameRate = FrameRate { num: 1, den: 1 };
    /// Slowest rate at which a source is analysed.
    pub const SLOWEST: FrameRate = FrameRate { num: 1, den: 5 };
    /// Fastest rate at which a source is analysed.
    pub const FASTEST: FrameRate = FrameRate { num: 120, den: 1 };
    /// Range of rates at which a source is analysed, in frames per second.
    pub const ANALYSED: RangeInclusive<f64> =
        FrameRate::SLOWEST.as_f64()..=FrameRate::FASTEST.as_f64();

    /// Creates the rate `num/den` frames per second, reduced; `None` unless it lies in [0.000001, 4000], so
    /// that every rate that is written can be read back.
    pub fn new(num: u32, den: u32) -> Option<FrameRate> {
        let (wide_num, wide_den) = (u64::from(num), u64::from(den));
        if den == 0 || wide_num * 1_000_000 < wide_den || wide_num > 4000 * wide_den {
            return None;
        }
        let divisor = gcd(num, den);
        Some(FrameRate { num: num / divisor, den: den / divisor })
    }

    /// Returns the fraction nearest to `fps`, in steps of a millionth.
    ///
    /// `None` unless `fps` lies in [0.000001, 4000].
    pub fn from_f64(fps: f64) -> Option<FrameRate> {
        if !(0.000_001..=4000.0).contains(&fps) {
            return None;
        }
        FrameRate::new((fps * 1e6).round() as u32, 1_000_000)
    }

    /// Returns the nearest rate in range, for out-of-range rates in older logs; `None` unless `fps` > 0.
    pub fn nearest(fps: f64) -> Option<FrameRate> {
        FrameRate::from_f64(fps.clamp(0.000_001, 4000.0)).filter(|_| fps > 0.0)
    }

    /// Returns the number of frames in `den` seconds.
    pub fn num(self) -> u32 {
        self.num
    }

    /// Returns the seconds in which `num` frames fall.
    pub fn den(self) -> u32 {
        self.den
    }

    /// Returns the frames per second, for the wire.
    pub const fn as_f64(self) -> f64 {
        self.num as f64 / self.den as f64
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Wall time: milliseconds since the Unix epoch, never compared with media time.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct WallTime {
    /// Milliseconds since 1970-01-01T00:00:00Z.
    pub epoch_ms: i64,
}

const DAY_MS: i64 = 86_400_000;

impl WallTime {
    /// Formats the date in UTC, such as `2026-11-27`.
    pub fn date(self) -> String {
        let (year, month, day) = civil(self.epoch_ms.div_euclid(DAY_MS));
        format!("{year:04}-{month:02}-{day:02}")
    }

    /// Formats the time as RFC 3339 in UTC with milliseconds.
    pub fn rfc3339(self) -> String {
        let (days, ms) = (self.epoch_ms.div_euclid(DAY_MS), self.epoch_ms.rem_euclid(DAY_MS));
        let (year, month, day) = civil(days);
        let (s, ms) = (ms / 1000, ms % 1000);
        let (h, m, s) = (s / 3600, s / 60 % 60, s % 60);
        format!("{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}.{ms:03}Z")
    }

    /// Parses RFC 3339 in UTC and truncates to milliseconds; `None` for other text.
    pub fn from_rfc3339(text: &str) -> Option<WallTime> {
        let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
        let (time, part) = time.split_once('.').unwrap_or((time, "0"));
        let [year, month, day] = numbers(date, '-')?;
        let [hour, minute, second] = numbers(time, ':')?;
        let is_near = (1..=12).contains(&month) && (1..=31).contains(&day) && year <= 9999;
        let is_date = is_near && civil(days(year, month, day)) == (year, month, day);
        let is_part = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        // A leap second counts as the second after it.
        if !is_date || hour > 23 || minute > 59 || second > 60 || !is_part {
            return None;
        }
        let ms: String = part.chars().chain("000".chars()).take(3).collect();
        let seconds = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
        let ms: u16 = ms.parse().ok()?;
        Some(WallTime { epoch_ms: seconds * 1000 + i64::from(ms) })
    }
}

/// Parses three numbers, of digits only, separated by `between`.
fn numbers(text: &str, between: char) -> Option<[i64; 3]> {
    let is_number = |part: &&str| part.bytes().all(|byte| byte.is_ascii_digit());
    let mut parts = text.split(between).filter(is_number).map(|part| part.parse().ok());
    let numbers = [parts.next()??, parts.next()??, parts.next()??];
    (text.matches(between).count() == 2).then_some(numbers)
}

/// Returns the days since 1970 of a date; inverse of [`civil`].
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Returns the proleptic Gregorian date of `days` since 1970, by eras of 400 years from March 1st.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn millis_round_to_the_nearest_halves_away_from_zero() {
        let at = |ticks, den| Timestamp::new(ticks, Timebase::new(1, den).expect("positive"));
        let cases = [
            ("zero", at(0, 30), 0),
            ("a third of 100 ms", at(1, 30), 33),
            ("two thirds", at(2, 30), 67),
            ("half up", at(1, 2000), 1),
            ("half down when negative", at(-1, 2000), -1),
            ("negative third", at(-1, 30), -33),
            (
                "saturates",
                Timestamp::new(i64::MAX, Timebase::new(u32::MAX, 1).expect("positive")),
                i64::MAX,
            ),
        ];
        for (name, stamp, expected) in cases {
            assert_eq!(stamp.as_millis(), expected, "{name}");
        }
    }

    #[test]
    fn stamps_of_different_timebases_compare_exactly() {
        let ntsc = Timestamp::new(1001, Timebase::new(1, 30_000).expect("positive"));
        let mpeg = Timestamp::new(3003, Timebase::RTP_VIDEO);
        assert_eq!(ntsc, mpeg);
        assert!(Timestamp::new(3004, Timebase::RTP_VIDEO) > ntsc);
    }

    #[test]
    fn the_kth_sample_instant_is_exact_far_out() {
        let rate = FrameRate::new(30_000, 1001).expect("positive");
        let timebase = Timebase::new(1001, 30_000).expect("positive");
        for k in [0, 1, 29, 1_000_000_007] {
            let stamp = Timestamp::new(k as i64, timebase);
            assert_eq!(stamp.cmp_sample_instant(k, rate), Ordering::Equal, "k = {k}");
            assert_eq!(stamp.cmp_sample_instant(k + 1, rate), Ordering::Less, "k = {k}");
        }
    }

    #[test]
    fn every_rate_that_is_made_can_be_read_back() {
        let rows = [
            (4000, 1, true),
            (4001, 1, false),
            (u32::MAX, 1_073_742, true),
            (u32::MAX, 1, false),
            (1, 1_000_000, true),
            (1, 1_000_001, false),
            (4294, u32::MAX, false),
            (4295, u32::MAX, true),
            (0, 1, false),
            (1, 0, false),
        ];
        for (num, den, is_made) in rows {
            let made = FrameRate::new(num, den);
            assert_eq!(made.is_some(), is_made, "{num}/{den}");
            assert!(
                made.is_none_or(|rate| FrameRate::from_f64(rate.as_f64()).is_some()),
                "{num}/{den}"
            );
        }
        let nearest = |fps| FrameRate::nearest(fps).map(FrameRate::as_f64);
        assert_eq!(nearest(90_000.0), Some(4000.0));
        assert_eq!(nearest(1e-9), Some(1e-6));
        assert_eq!([0.0, -1.0, f64::NAN].map(nearest), [None; 3]);
    }

    #[test]
    fn rates_reduce_and_refuse_zero() {
        assert_eq!(FrameRate::from_f64(0.2).map(|r| (r.num(), r.den())), Some((1, 5)));
        assert_eq!(FrameRate::from_f64(29.97).map(|r| (r.num(), r.den())), Some((2997, 100)));
        assert_eq!(FrameRate::from_f64(0.0), None);
        assert_eq!(FrameRate::from_f64(f64::NAN), None);
    }

    #[test]
    fn wall_times_are_written_as_rfc_3339() {
        let cases = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_799_999, "2000-02-29T23:59:59.999Z"),
            (1_709_164_800_000, "2024-02-29T00:00:00.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
        ];
        for (epoch_ms, expected) in cases {
            assert_eq!(WallTime { epoch_ms }.rfc3339(), expected);
            assert_eq!(WallTime::from_rfc3339(expected), Some(WallTime { epoch_ms }));
        }
        let read = |text| WallTime::from_rfc3339(text).map(|time| time.epoch_ms);
        let cases = [
            ("1970-01-01T00:00:01Z", Some(1000)),
            ("1970-01-01T00:00:00.25Z", Some(250)),
            ("1970-01-01T00:00:00.000999Z", Some(0)),
            ("1970-01-01T00:00:00", None),
            ("1970-01-01 00:00:00Z", None),
            ("1972-02-29T00:00:00Z", Some(68_169_600_000)),
            ("1970-02-29T00:00:00Z", None),
            ("1970-02-31T00:00:00Z", None),
            ("1970-04-31T00:00:00Z", None),
            ("1970-13-01T00:00:00Z", None),
            ("1970-01-01T00:00:00.Z", None),
            ("1970-01-01T00:00:00.+1Z", None),
            ("1970-01-01T00:00:00.250 or soZ", None),
            ("1970-01-01T24:00:00Z", None),
            ("1970-01-01T00:00Z", None),
            ("-1-01-01T00:00:00Z", None),
            ("99999-01-01T00:00:00Z", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(read(text), expected, "{text}");
        }
    }
}
