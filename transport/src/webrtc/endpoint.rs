//! WebRTC endpoint: one socket and thread for all sessions, and the handles to it and to a session.
//!
//! Handles queue commands for the endpoint's thread and wake it. Promises that a dropped session is closed
//! even if the command queue is full, that no handle waits for the thread, and that the end of the thread is
//! reported.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::JoinHandle,
    time::Instant,
};

use super::{
    EndpointConfig, EndpointError, EndpointStats, IceRestartAnswer, OfferError, SdpAnswer,
    SdpFragError, SessionHandler, SessionStats,
    command_queue::{CommandQueue, EndpointCommand, NewSession},
    dtls::DtlsIdentity,
    event_loop::EndpointThread,
    random,
    sdp::SdpOffer,
    sdp_answer::{self, IceCredentials, LocalParameters},
    sdpfrag::{self, SdpFragment},
    session_table::SessionTable,
    socket::UdpEndpointSocket,
    stats::SharedSessionStats,
};

/// Stack size of the thread: the DTLS parser recurses per fragment, and handlers run on the stack.
const STACK_BYTES: usize = 4 << 20;
/// Documentation addresses: the route to them is the default route; nothing is sent.
const FAR_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const FAR_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));

/// WebRTC endpoint; clones share it. Dropping the last clone ends its thread and closes the socket.
#[derive(Clone)]
pub struct WebRtcEndpoint(Arc<Inner>);

struct Inner {
    shared: Arc<CommandQueue>,
    settings: EndpointConfig,
    local: SocketAddr,
    candidates: Arc<[SocketAddr]>,
    identity: Arc<DtlsIdentity>,
    next: AtomicU64,
    /// `None` once it is joined.
    thread: Option<JoinHandle<()>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.end();
        // A handler may own the last handle; then this is the thread itself, which ends by itself.
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!("the WebRTC receiver panicked");
        }
    }
}

impl WebRtcEndpoint {
    /// Binds the socket, generates the certificate, and starts the thread.
    pub fn open(settings: EndpointConfig) -> Result<WebRtcEndpoint, EndpointError> {
        let socket = UdpEndpointSocket::bind(settings.bind)?;
        let local = socket.local;
        let identity = Arc::new(DtlsIdentity::generate()?);
        let candidates = candidates(&settings, local)?.into();
        let shared = Arc::new(CommandQueue::new()?);
        let gone = shared.gone.clone().drop_guard();
        let sessions = SessionTable::new(
            Arc::clone(&shared),
            Arc::clone(&identity),
            settings.clone(),
            Instant::now(),
        );
        let driver = EndpointThread { socket, shared: Arc::clone(&shared), sessions };
        let thread = std::thread::Builder::new()
            .name("webrtc".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                // Dropped last: then the socket is gone, even after a panic.
                let _gone = gone;
                driver.run();
            })?;
        Ok(WebRtcEndpoint(Arc::new(Inner {
            shared,
            settings,
            local,
            candidates,
            identity,
            next: AtomicU64::new(1),
            thread: Some(thread),
        })))
    }

    /// Returns the address of the socket.
    pub fn local_addr(&self) -> SocketAddr {
        self.0.local
    }

    /// Ends the endpoint and all of its sessions, as dropping the last clone does.
    pub fn end(&self) {
        self.0.shared.end();
    }

    /// Returns true if the endpoint has ended.
    pub fn has_ended(&self) -> bool {
        self.0.shared.ended.load(Relaxed)
    }

    /// Waits until the thread has ended for any reason and its address is free.
    pub async fn ended(&self) {
        self.0.shared.gone.cancelled().await;
    }

    /// Returns the counts of the endpoint.
    pub fn counts(&self) -> &EndpointStats {
        &self.0.shared.counts
    }

    /// Answers an offer. Media goes to `sink` once the peer has connected; the session ends when the returned
    /// handle is dropped, if not before.
    pub fn answer(
        &self,
        offer: &str,
        sink: Box<dyn SessionHandler>,
    ) -> Result<(SessionHandle, SdpAnswer), OfferError> {
        let inner = &self.0;
        if self.has_ended() {
            return Err(OfferError::Ended);
        }
        let offer = SdpOffer::parse(offer)?;
        let negotiated = sdp_answer::negotiate(&offer)?;
        let local = random::credentials().ok_or(OfferError::Random)?;
        let etag = random::etag().ok_or(OfferError::Random)?;
        let sdp = sdp_answer::write(
            &offer,
            &negotiated,
            &LocalParameters {
                credentials: &local,
                fingerprint: &inner.identity.fingerprint,
                candidates: &inner.candidates,
                session: random::number().ok_or(OfferError::Random)? >> 1,
            },
        );
        let codec = negotiated.video[0].codec;
        let max = inner.settings.sessions_max;
        let sessions = &inner.shared.counts.sessions;
        let more = |open: usize| (open < max).then_some(open + 1);
        sessions.fetch_update(Relaxed, Relaxed, more).map_err(|_| OfferError::Full(max))?;
        let state = Arc::new(SharedSessionStats::default());
        let session = SessionHandle {
            id: inner.next.fetch_add(1, Relaxed),
            shared: Arc::clone(&inner.shared),
            state: Arc::clone(&state),
            candidates: Arc::clone(&inner.candidates),
            mid: negotiated.transport_mid.clone(),
            ice: Mutex::new(IceSession { remote: negotiated.remote.clone(), etag: etag.clone() }),
        };
        let opening = NewSession { id: session.id, negotiated, local, sink, state };
        if !inner.shared.send(EndpointCommand::Open(Box::new(opening))) {
            sessions.fetch_sub(1, Relaxed);
            let has_ended = inner.shared.ended.load(Relaxed);
            return Err(if has_ended { OfferError::Ended } else { OfferError::Busy });
        }
        Ok((session, SdpAnswer { sdp, etag, codec }))
    }
}

/// Returns the addresses announced to peers as candidates.
fn candidates(
    settings: &EndpointConfig,
    local: SocketAddr,
) -> Result<Vec<SocketAddr>, EndpointError> {
    let addresses: Vec<IpAddr> = if !settings.public_ips.is_empty() {
        settings.public_ips.clone()
    } else if !local.ip().is_unspecified() {
        vec![local.ip()]
    } else {
        reachable(local.is_ipv6())?
    };
    Ok(addresses.into_iter().map(|ip| SocketAddr::new(ip, local.port())).collect())
}

/// Returns the source address of each family's default route, or loopback without a route. The choice by
/// route excludes container bridges and tunnels, which no peer can reach.
fn reachable(both: bool) -> io::Result<Vec<IpAddr>> {
    let mut found = Vec::from_iter(leaving(Ipv4Addr::UNSPECIFIED.into(), FAR_V4)?);
    if both {
        found.extend(leaving(Ipv6Addr::UNSPECIFIED.into(), FAR_V6)?);
    }
    if found.is_empty() {
        found.push(Ipv4Addr::LOCALHOST.into());
    }
    Ok(found)
}

/// Returns the source address for `to`. Connecting a UDP socket sends nothing.
fn leaving(from: IpAddr, to: IpAddr) -> io::Result<Option<IpAddr>> {
    // A machine without the family, or without a route in it, has no such address.
    let Ok(socket) = UdpSocket::bind(SocketAddr::new(from, 0)) else { return Ok(None) };
    if socket.connect(SocketAddr::new(to, 9)).is_err() {
        return Ok(None);
    }
    let address = socket.local_addr()?.ip();
    Ok((!address.is_unspecified()).then_some(address))
}

struct IceSession {
    remote: IceCredentials,
    etag: String,
}

/// Handle of one session. Dropping it ends the session, notifies the peer and drops the handler.
pub struct SessionHandle {
    id: u64,
    shared: Arc<CommandQueue>,
    state: Arc<SharedSessionStats>,
    candidates: Arc<[SocketAddr]>,
    mid: String,
    ice: Mutex<IceSession>,
}

impl Drop for SessionHandle {
    fn drop(&mut self) {
        if !self.state.ended.load(Relaxed) {
            self.shared.send(EndpointCommand::Close(self.id));
        }
    }
}

impl SessionHandle {
    /// Applies a fragment of RFC 8840 or a bare candidate line: candidates, which are only checked, or an ICE
    /// restart, i.e. new credentials, whose answer is returned. `tag` is the entity tag that the peer sent; `*`
    /// matches any. The old pair carries media until the peer has nominated a new one.
    pub fn patch(
        &self,
        fragment: &str,
        tag: Option<&[u8]>,
    ) -> Result<Option<IceRestartAnswer>, SdpFragError> {
        let fragment = SdpFragment::parse(fragment);
        let mut ice = self.ice.lock().unwrap_or_else(PoisonError::into_inner);
        let ufrag = fragment.as_ref().ok().and_then(|fragment| fragment.ufrag.as_ref());
        let restarts = ufrag.is_some_and(|ufrag| *ufrag != ice.remote.ufrag);
        match tag {
            None if restarts => return Err(SdpFragError::TagMissing),
            Some(tag) if tag != b"*" && tag != ice.etag.as_bytes() => {
                return Err(SdpFragError::TagOther);
            }
            _ => {}
        }
        if self.state.ended.load(Relaxed) || self.shared.ended.load(Relaxed) {
            return Err(SdpFragError::Ended);
        }
        let SdpFragment { ufrag, pwd, .. } = fragment?;
        let Some(ufrag) = ufrag.filter(|_| restarts) else { return Ok(None) };
        let pwd = pwd.ok_or(SdpFragError::Missing("a=ice-pwd"))?;
        // RFC 8445 9: a restart changes both ufrag and password.
        if pwd == ice.remote.pwd {
            return Err(SdpFragError::OtherSession);
        }
        let remote = IceCredentials { ufrag, pwd };
        let local = random::credentials().ok_or(SdpFragError::Random)?;
        let etag = random::etag().ok_or(SdpFragError::Random)?;
        let sdpfrag = sdpfrag::write(&local, &self.mid, &self.candidates);
        let command = EndpointCommand::Restart { id: self.id, local };
        if !self.shared.send(command) {
            return Err(SdpFragError::Busy);
        }
        *ice = IceSession { remote, etag: etag.clone() };
        Ok(Some(IceRestartAnswer { sdpfrag, etag }))
    }

    /// Asks the peer for a keyframe, unless it was asked a moment ago.
    pub fn request_keyframe(&self) {
        // If the command queue is full, the next loss triggers another request.
        if !self.shared.send(EndpointCommand::Keyframe(self.id)) {
            tracing::debug!(session = self.id, "a keyframe is not asked for: receiver is busy");
        }
    }

    /// Returns the counts of the session.
    pub fn counts(&self) -> SessionStats {
        self.state.snapshot()
    }
}

#[cfg(test)]
pub(super) mod tests;
