//! Playback position of a session in the clip. Pure: instants go in, pictures with RTP times come out.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::clip::{ClipFile, CodedFrame};

/// Age in ticks up to which a sent keyframe answers a keyframe request.
const FRESH_TICKS: i64 = 90_000 / 2;

/// Plays a clip once or in a loop.
#[derive(Debug)]
pub struct Player {
    clip: Arc<ClipFile>,
    repeats: bool,
    start: Instant,
    /// Index of the next picture; the number of pictures at the end.
    next: usize,
    /// Offset in ticks from clip time to the time since `start`.
    shift: i64,
    /// Ticks from `start` to the last keyframe sent.
    keyframe_at: Option<i64>,
}

impl Player {
    pub fn new(clip: Arc<ClipFile>, repeats: bool, start: Instant) -> Player {
        Player { clip, repeats, start, next: 0, shift: 0, keyframe_at: None }
    }

    /// Returns the time at which the next picture is due; `None` at the end.
    pub fn next_at(&self) -> Option<Instant> {
        let picture = self.clip.pictures.get(self.next)?;
        Some(self.start + duration(picture.decode_at + self.shift))
    }

    /// Returns the next picture, if it is due, and its time in ticks since `start`.
    pub fn due(&mut self, now: Instant) -> Option<(&CodedFrame, i64)> {
        self.next_at().filter(|&at| at <= now)?;
        let index = self.next;
        let picture = &self.clip.pictures[index];
        let at = picture.pts + self.shift;
        if picture.keyframe {
            self.keyframe_at = Some(picture.decode_at + self.shift);
        }
        self.next += 1;
        if self.next == self.clip.pictures.len() && self.repeats {
            self.next = 0;
            self.shift += self.clip.length;
        }
        Some((&self.clip.pictures[index], at))
    }

    /// Skips to the next keyframe; returns true if pictures were skipped.
    ///
    /// Skips nothing if a keyframe was sent just before, is next, or does not follow.
    pub fn jump(&mut self, now: Instant) -> bool {
        let since = ticks(now.saturating_duration_since(self.start));
        if self.keyframe_at.is_some_and(|at| since - at < FRESH_TICKS) {
            return false;
        }
        let pictures = &self.clip.pictures;
        let ahead = pictures[self.next.min(pictures.len())..]
            .iter()
            .position(|picture| picture.keyframe)
            .map(|ahead| self.next + ahead);
        // Every clip begins with a keyframe.
        let Some(target) = ahead.or(self.repeats.then_some(0)) else { return false };
        if target == self.next {
            return false;
        }
        self.next = target;
        self.shift = since - pictures[target].decode_at;
        true
    }
}

fn duration(ticks: i64) -> Duration {
    Duration::from_nanos(u64::try_from(ticks).unwrap_or(0).saturating_mul(100_000) / 9)
}

fn ticks(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos() * 9 / 100_000).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use media::Codec;

    use super::*;

    /// Makes a player of pictures 40 ms apart; `k` stands for a keyframe.
    fn player(kinds: &str, repeats: bool, start: Instant) -> Player {
        let picture = |(index, kind): (usize, char)| {
            let at = 3600 * index as i64;
            CodedFrame { keyframe: kind == 'k', pts: at, decode_at: at, payloads: Vec::new() }
        };
        let pictures: Vec<CodedFrame> = kinds.chars().enumerate().map(picture).collect();
        let length = 3600 * pictures.len() as i64;
        let clip = ClipFile { codec: Codec::Vp8, fmtp: String::new(), pictures, length };
        Player::new(Arc::new(clip), repeats, start)
    }

    fn played(player: &mut Player, now: Instant) -> Vec<(bool, i64)> {
        std::iter::from_fn(|| player.due(now).map(|(picture, at)| (picture.keyframe, at))).collect()
    }

    #[test]
    fn pictures_come_at_their_times() {
        let start = Instant::now();
        let ms = |ms| start + Duration::from_millis(ms);
        let mut once = player("kpp", false, start);
        assert_eq!(played(&mut once, ms(0)), [(true, 0)]);
        assert_eq!(once.next_at(), Some(ms(40)));
        assert_eq!(played(&mut once, ms(39)), []);
        assert_eq!(played(&mut once, ms(80)), [(false, 3600), (false, 7200)]);
        assert_eq!((once.next_at(), once.jump(ms(900))), (None, false));
        let mut over = player("kp", true, start);
        assert_eq!(played(&mut over, ms(100)), [(true, 0), (false, 3600), (true, 7200)]);
    }

    #[test]
    fn a_jump_plays_the_next_keyframe_now() {
        let start = Instant::now();
        let ms = |ms| start + Duration::from_millis(ms);
        let clip = format!("k{}k{}", "p".repeat(24), "p".repeat(24));
        let mut one = player(&clip, false, start);
        played(&mut one, ms(200));
        assert!(!one.jump(ms(300)), "a keyframe was just sent");
        played(&mut one, ms(600));
        assert!(one.jump(ms(610)));
        assert_eq!(one.next_at(), Some(ms(610)));
        assert_eq!(played(&mut one, ms(611)), [(true, 54_900)]);
        played(&mut one, ms(1400));
        assert!(!one.jump(ms(1400)), "none follows");
        let mut over = player(&clip, true, start);
        played(&mut over, ms(1800));
        assert!(over.jump(ms(1810)), "the first follows the last");
        assert_eq!(played(&mut over, ms(1810)), [(true, 162_900)]);
    }
}
