//! Supervisor of the WebRTC endpoint: reopens it when its thread ends.
//!
//! Promises that an end is logged and counted, that the address stays, and that attempts are at most 30 s
//! apart. Offers are refused until the endpoint is open again. Sessions of the ended endpoint end with it,
//! and their handlers are told.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use transport::webrtc::{
    EndpointConfig, EndpointError, OfferError, SdpAnswer, SessionHandle as Link, SessionHandler,
    WebRtcEndpoint,
};

use super::transport_metrics::DroppedCounters;
use crate::base::{backoff::Backoff, metrics::Metrics};

/// Delays before attempts to reopen.
const PAUSES: Backoff =
    Backoff { first: Duration::from_millis(100), factor: 2, longest: Duration::from_secs(30) };
/// Lifetime after which the next end of an endpoint counts as a first failure.
const STEADY: Duration = Duration::from_secs(60);

/// Current WebRTC endpoint, and the settings to reopen it with.
pub struct EndpointSupervisor {
    /// Settings of the first endpoint, with the address that it was given.
    settings: EndpointConfig,
    port: Mutex<WebRtcEndpoint>,
    dropped: DroppedCounters,
    metrics: Arc<Metrics>,
}

impl EndpointSupervisor {
    pub fn open(
        settings: EndpointConfig,
        metrics: Arc<Metrics>,
    ) -> Result<EndpointSupervisor, EndpointError> {
        let port = WebRtcEndpoint::open(settings.clone())?;
        let settings = EndpointConfig { bind: port.local_addr(), ..settings };
        Ok(EndpointSupervisor {
            settings,
            port: Mutex::new(port),
            dropped: DroppedCounters::default(),
            metrics,
        })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.settings.bind
    }

    pub fn answer(
        &self,
        offer: &str,
        sink: Box<dyn SessionHandler>,
    ) -> Result<(Link, SdpAnswer), OfferError> {
        self.current().answer(offer, sink)
    }

    pub fn is_open(&self) -> bool {
        !self.current().has_ended()
    }

    /// Ends the endpoint and every session, as a fault of its thread does; another one is then opened.
    pub fn end(&self) {
        self.current().end();
    }

    /// Adds the datagrams dropped since the last call to the metrics.
    pub fn tell(&self) {
        self.dropped.tell(self.current().counts(), &self.metrics);
    }

    /// Reopens the endpoint whenever it has ended, until the server shuts down.
    pub async fn keep(&self, draining: CancellationToken) {
        let mut attempts = 0;
        loop {
            let (port, opened_at) = (self.current(), Instant::now());
            tokio::select! {
                () = draining.cancelled() => return,
                () = port.ended() => {}
            }
            self.metrics.live_receiver_ends.inc();
            let addr = self.local_addr();
            tracing::error!(%addr, "the receiver of live video ended: it is opened anew");
            if opened_at.elapsed() >= STEADY {
                attempts = 0;
            }
            loop {
                attempts = u32::saturating_add(attempts, 1);
                tokio::select! {
                    () = draining.cancelled() => return,
                    () = sleep(PAUSES.exact(attempts)) => {}
                }
                match self.reopen() {
                    Ok(()) => break tracing::info!(%addr, "live video is received again"),
                    Err(error) => tracing::error!(%addr, %error, "live video is not received"),
                }
            }
        }
    }

    fn reopen(&self) -> Result<(), EndpointError> {
        let opened = WebRtcEndpoint::open(self.settings.clone())?;
        let mut port = self.port.lock();
        // The counts of a new endpoint start at zero.
        self.dropped.tell(port.counts(), &self.metrics);
        self.dropped.begin_anew();
        *port = opened;
        Ok(())
    }

    fn current(&self) -> WebRtcEndpoint {
        self.port.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(metrics: &Arc<Metrics>) -> EndpointSupervisor {
        let settings = EndpointConfig {
            bind: ([127, 0, 0, 1], 0).into(),
            public_ips: Vec::new(),
            sessions_max: 10,
            connect_within: Duration::from_secs(30),
            lost_after: Duration::from_secs(10),
        };
        EndpointSupervisor::open(settings, Arc::clone(metrics)).expect("opened")
    }

    #[tokio::test]
    async fn counts_go_on_growing() {
        let metrics = Arc::new(Metrics::new());
        let port = port(&metrics);
        let unknown = metrics.live_refused.of(transport::webrtc::DropReason::UnknownSource);
        let client = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
        for (sent, told) in [(3, 3), (2, 5)] {
            (0..sent).for_each(|_| {
                client.send_to(&[0x80; 30], port.local_addr()).expect("sent");
            });
            let counted = async {
                while unknown.get() < told {
                    port.tell();
                    sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(60), counted).await.expect("counted");
            assert_eq!(unknown.get(), told);
            port.current().end();
            port.current().ended().await;
            port.reopen().expect("opened");
        }
    }
}
