//! Coalescing signal from the endpoint thread to the session task: only the latest value of each
//! field is kept, except `end`, of which the first stays.

use media::Codec;
use parking_lot::Mutex;
use tokio::sync::Notify;
use transport::webrtc::SessionEvent;

/// Changes since the task last read them.
#[derive(Debug, Default)]
pub struct PublisherChanges {
    /// Codec whose access units arrive or are about to: they need a worker slot.
    pub coded: Option<Codec>,
    /// Access units are missing: nothing can be decoded until the next keyframe.
    pub is_broken: bool,
    pub has_connected: bool,
    /// Reason why the publisher is gone.
    pub end: Option<SessionEvent>,
}

#[derive(Debug, Default)]
pub struct PublisherSignals {
    happened: Mutex<PublisherChanges>,
    bell: Notify,
}

impl PublisherSignals {
    /// Signals that access units of `codec` arrive, or are about to.
    pub fn coded(&self, codec: Codec) {
        self.happened.lock().coded = Some(codec);
        self.bell.notify_one();
    }

    pub fn broken(&self) {
        self.happened.lock().is_broken = true;
        self.bell.notify_one();
    }

    pub fn told(&self, told: SessionEvent) {
        let mut happened = self.happened.lock();
        match told {
            SessionEvent::Connected => happened.has_connected = true,
            end => _ = happened.end.get_or_insert(end),
        }
        drop(happened);
        self.bell.notify_one();
    }

    pub async fn next(&self) -> PublisherChanges {
        self.bell.notified().await;
        std::mem::take(&mut self.happened.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn facts_join_and_the_first_end_stays() {
        let turns = PublisherSignals::default();
        for _ in 0..100 {
            turns.broken();
        }
        turns.coded(Codec::Vp8);
        turns.told(SessionEvent::Connected);
        turns.told(SessionEvent::Lost);
        turns.told(SessionEvent::Closed);
        let PublisherChanges { coded, is_broken, has_connected, end } = turns.next().await;
        assert_eq!((coded, end), (Some(Codec::Vp8), Some(SessionEvent::Lost)));
        assert!(is_broken && has_connected);
        let (later, ()) = tokio::join!(turns.next(), async { turns.broken() });
        assert!(later.is_broken && later.end.is_none() && later.coded.is_none());
    }
}
