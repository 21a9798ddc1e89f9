//! Token bucket for the output tokens of a session. Its balance may go below zero, as the cost of
//! an answer is known only afterwards. Reads no clock.

use std::time::Instant;

#[derive(Clone, Copy, Debug)]
pub struct TokenRateLimit {
    /// Output tokens per second; `None` is unlimited.
    per_second: Option<u32>,
    /// Tokens left; negative after an answer that cost more.
    balance: f64,
    counted_at: Instant,
}

impl TokenRateLimit {
    /// Creates a bucket that holds one second's tokens.
    pub fn new(per_second: Option<u32>, now: Instant) -> TokenRateLimit {
        let balance = f64::from(per_second.unwrap_or_default());
        TokenRateLimit { per_second, balance, counted_at: now }
    }

    pub fn allows(&mut self, now: Instant) -> bool {
        let Some(rate) = self.per_second.map(f64::from) else { return true };
        let elapsed = now.saturating_duration_since(self.counted_at).as_secs_f64();
        self.balance = (self.balance + elapsed * rate).min(rate);
        self.counted_at = now;
        self.balance > 0.0
    }

    pub fn spend(&mut self, tokens: u64) {
        self.balance -= tokens as f64;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn debt_is_worked_off_at_the_rate() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut allowance = TokenRateLimit::new(Some(100), start);
        assert!(allowance.allows(start));
        allowance.spend(350);
        for (ms, allowed) in [(0, false), (1000, false), (2400, false), (2600, true)] {
            assert_eq!(allowance.allows(at(ms)), allowed, "{ms} ms");
        }
        // The balance is capped at one second's tokens.
        assert!(allowance.allows(at(3_600_000)));
        allowance.spend(100);
        assert!(!allowance.allows(at(3_600_000)));
    }

    #[test]
    fn without_a_rate_everything_is_allowed() {
        let mut allowance = TokenRateLimit::new(None, Instant::now());
        allowance.spend(u64::from(u32::MAX));
        assert!(allowance.allows(Instant::now()));
    }

    #[test]
    fn the_long_run_keeps_the_rate() {
        let start = Instant::now();
        let mut allowance = TokenRateLimit::new(Some(50), start);
        let mut spent = 0;
        for ms in (0..60_000).step_by(33) {
            if allowance.allows(start + Duration::from_millis(ms)) {
                allowance.spend(37);
                spent += 37;
            }
        }
        assert!((3000..=3100).contains(&spent), "{spent} tokens in a minute of 50 a second");
    }
}
