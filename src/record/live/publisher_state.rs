//! Signals to a session's task about its publisher: facts that replace each other, so that none
//! waits in a queue and none is lost.

use media::Codec;
use parking_lot::Mutex;
use tokio::sync::Notify;
use transport::webrtc::SessionEvent;

/// Changes since the task read them last.
#[derive(Debug, Default)]
pub struct PublisherChanges {
    /// Pictures of this codec come, or are about to: they need a place in a worker.
    pub coded: Option<Codec>,
    /// Pictures are missing: nothing is shown until the next that decoding can start with.
    pub is_broken: bool,
    /// The publisher has connected.
    pub has_connected: bool,
    /// The publisher is gone, and how.
    pub end: Option<SessionEvent>,
}

/// Changes to come, and the signal that there are some.
#[derive(Debug, Default)]
pub struct PublisherSignals {
    happened: Mutex<PublisherChanges>,
    bell: Notify,
}

impl PublisherSignals {
    /// Pictures of `codec` come, or are about to.
    pub fn coded(&self, codec: Codec) {
        self.happened.lock().coded = Some(codec);
        self.bell.notify_one();
    }

    /// Pictures are missing.
    pub fn broken(&self) {
        self.happened.lock().is_broken = true;
        self.bell.notify_one();
    }

    /// The connection has become this.
    pub fn told(&self, told: SessionEvent) {
        let mut happened = self.happened.lock();
        match told {
            SessionEvent::Connected => happened.has_connected = true,
            end => _ = happened.end.get_or_insert(end),
        }
        drop(happened);
        self.bell.notify_one();
    }

    /// Waits for changes and takes them.
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
