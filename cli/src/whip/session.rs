//! A WebRTC connection that sends a clip; does no I/O but on its own socket.

use std::{
    collections::VecDeque,
    io::ErrorKind,
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use bytes::BytesMut;
use reqwest::Url;
use rtc::{
    peer_connection::{
        RTCPeerConnection, event::RTCPeerConnectionEvent, sdp::RTCSessionDescription,
        state::RTCPeerConnectionState,
    },
    rtp,
    rtp_transceiver::RTCRtpSenderId,
    sansio::Protocol,
    shared::{TaggedBytesMut, TransportContext, TransportProtocol},
};

use super::{
    PublishStats,
    clip::ClipFile,
    network_sim::{self, NetworkSim},
    no_socket,
    player::Player,
};
use crate::error::{CliError, Exit};

mod connection;
mod feedback;

use feedback::FeedbackCounters;

const CONNECT_WITHIN: Duration = Duration::from_secs(30);
/// Time after the last packet in which lost ones can still be requested again.
const LINGER: Duration = Duration::from_millis(500);
/// Most datagrams read at a time, so that other sessions get their turn.
const READ_MAX: usize = 64;
/// Most datagrams queued for the socket.
const UNSENT_MAX: usize = 8192;
/// First byte of a DTLS alert, which ends a connection (RFC 9147 4, RFC 8446 B.1).
const DTLS_ALERT: u8 = 21;
/// Time after which a full socket is tried again.
const RETRY: Duration = Duration::from_millis(1);

#[derive(Clone, Debug)]
pub struct PlaybackOptions {
    pub clip: Arc<ClipFile>,
    /// True to begin again at the end.
    pub repeats: bool,
    /// Media packets to drop, in percent.
    pub loss: f64,
    /// Longest delay of a media packet.
    pub jitter: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PublishState {
    Connecting,
    Playing,
    /// All is sent; the session is done at this time.
    Lingering(Instant),
    Done,
}

pub struct PublisherSession {
    number: usize,
    plan: PlaybackOptions,
    connection: RTCPeerConnection,
    sender: RTCRtpSenderId,
    pub socket: UdpSocket,
    local: SocketAddr,
    network: NetworkSim,
    unsent: VecDeque<(SocketAddr, Vec<u8>)>,
    player: Option<Player>,
    state: PublishState,
    offered_at: Instant,
    ssrc: u32,
    sequence: u16,
    first_timestamp: u32,
    payload_type: u8,
    /// The session's URL at the server; `None` before the answer, and once deleted.
    pub resource: Option<Url>,
    /// Packets of pictures, without retransmissions.
    played: u64,
    stats: PublishStats,
    feedback: Arc<FeedbackCounters>,
}

impl PublisherSession {
    /// Creates session `number`, counted from 1, that sends from `ip`; also returns the offer to post.
    pub fn offer(
        number: usize,
        plan: &PlaybackOptions,
        ip: IpAddr,
        now: Instant,
    ) -> Result<(PublisherSession, String), CliError> {
        let socket = UdpSocket::bind((ip, 0)).map_err(no_socket)?;
        socket.set_nonblocking(true).map_err(no_socket)?;
        let local = socket.local_addr().map_err(no_socket)?;
        let [ssrc, seed, first_timestamp, sequence] = random().map_err(no_socket)?;
        let heard = Arc::<FeedbackCounters>::default();
        let (connection, sender, offer) =
            connection::offer(&plan.clip, local, ssrc, Arc::clone(&heard), now)
                .map_err(failed(number, "offer"))?;
        // One seed per session, so that a test with loss can be repeated.
        let path = NetworkSim::new(plan.loss, plan.jitter, number as u64);
        let session = PublisherSession {
            number,
            plan: plan.clone(),
            connection,
            sender,
            socket,
            local,
            network: path,
            unsent: VecDeque::new(),
            player: None,
            state: PublishState::Connecting,
            offered_at: now,
            ssrc,
            sequence: (sequence ^ seed) as u16,
            first_timestamp,
            payload_type: connection::PAYLOAD_TYPE,
            resource: None,
            played: 0,
            stats: PublishStats::default(),
            feedback: heard,
        };
        Ok((session, offer))
    }

    /// Applies the server's answer; `resource` is the session's URL.
    pub fn accept(&mut self, answer: String, resource: Url, now: Instant) -> Result<(), CliError> {
        self.resource = Some(resource);
        let failed = failed(self.number, "answer");
        let answer = RTCSessionDescription::answer(answer).map_err(&failed)?;
        self.connection.set_remote_description(now, answer).map_err(&failed)?;
        let mut sender = self.connection.rtp_sender(self.sender);
        let codecs = sender.as_mut().map(|sender| &sender.get_parameters().rtp_parameters.codecs);
        if let Some(codec) = codecs.and_then(|codecs| codecs.first()) {
            self.payload_type = codec.payload_type;
        }
        Ok(())
    }

    /// Returns true if everything is sent or the session was closed.
    pub fn is_done(&self) -> bool {
        self.state == PublishState::Done
    }

    /// Returns the statistics so far.
    pub fn figures(&self) -> PublishStats {
        PublishStats {
            lost: self.stats.lost + self.network.lost,
            repeated: self.stats.packets.saturating_sub(self.played),
            ..self.stats
        }
    }

    /// Returns the time at which to call `drive` even if no datagram arrives.
    pub fn next_at(&mut self, now: Instant) -> Instant {
        let player = self.player.as_ref().and_then(Player::next_at);
        let state = match self.state {
            PublishState::Connecting => Some(self.offered_at + CONNECT_WITHIN),
            PublishState::Lingering(until) => Some(until),
            PublishState::Playing | PublishState::Done => None,
        };
        let retry = (!self.unsent.is_empty()).then_some(now + RETRY);
        [self.connection.poll_timeout(), player, state, retry, self.network.next_at()]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(now + CONNECT_WITHIN)
    }

    /// Reads, plays and writes all that is due.
    pub fn drive(&mut self, now: Instant) -> Result<(), CliError> {
        self.read(now)?;
        if self.connection.poll_timeout().is_some_and(|at| at <= now) {
            self.connection.handle_timeout(now).map_err(failed(self.number, "timer"))?;
        }
        self.note_events(now)?;
        self.note_feedback(now);
        self.play(now)?;
        self.write(now);
        match self.state {
            PublishState::Connecting if now >= self.offered_at + CONNECT_WITHIN => {
                Err(self.never_connected())
            }
            PublishState::Lingering(until) if now >= until => {
                self.state = PublishState::Done;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Closes the connection with the server.
    pub fn close(&mut self, now: Instant) -> Result<(), CliError> {
        self.state = PublishState::Done;
        let closed = self.connection.close().map_err(failed(self.number, "close"));
        self.write(now);
        closed
    }

    /// Returns the error of a session that the server accepted, and which never connected.
    pub fn never_connected(&self) -> CliError {
        let session = format!("session {} was accepted and never connected", self.number);
        CliError::Exit(Exit::Unreachable, format!("{session}: no answer to ICE or DTLS"))
    }

    fn ended(&self) -> CliError {
        CliError::Check(format!("session {} was ended by the server", self.number))
    }

    fn read(&mut self, now: Instant) -> Result<(), CliError> {
        let mut bytes = [0; 2048];
        for _ in 0..READ_MAX {
            let (length, peer_addr) = match self.socket.recv_from(&mut bytes) {
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // ICMP error for an earlier datagram; ICE and DTLS notice a peer that is gone.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => continue,
                Err(error) => return Err(no_socket(error)),
            };
            let transport = TransportContext {
                local_addr: self.local,
                peer_addr,
                transport_protocol: TransportProtocol::UDP,
                ecn: None,
            };
            let message = BytesMut::from(&bytes[..length]);
            self.connection
                .handle_read(TaggedBytesMut { now, transport, message })
                .map_err(failed(self.number, "packet"))?;
            // The library does not report a peer that closes until ICE checks remain unanswered.
            if self.state == PublishState::Playing && bytes[0] == DTLS_ALERT {
                return Err(self.ended());
            }
        }
        Ok(())
    }

    fn note_events(&mut self, now: Instant) -> Result<(), CliError> {
        while let Some(event) = self.connection.poll_event() {
            let RTCPeerConnectionEvent::OnConnectionStateChangeEvent(state) = event else {
                continue;
            };
            match (state, self.state) {
                (RTCPeerConnectionState::Connected, PublishState::Connecting) => {
                    self.state = PublishState::Playing;
                    let took = now.saturating_duration_since(self.offered_at).as_millis();
                    self.stats.connected = 1;
                    self.stats.connect_ms_max = u64::try_from(took).unwrap_or(u64::MAX);
                    let clip = Arc::clone(&self.plan.clip);
                    self.player = Some(Player::new(clip, self.plan.repeats, now));
                }
                (RTCPeerConnectionState::Failed, PublishState::Connecting) => {
                    return Err(self.never_connected());
                }
                (
                    RTCPeerConnectionState::Failed | RTCPeerConnectionState::Closed,
                    PublishState::Playing,
                ) => {
                    return Err(self.ended());
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Notes the server's feedback on the media.
    fn note_feedback(&mut self, now: Instant) {
        // Polling drives packets through the connection; it never returns any, as none is received.
        while self.connection.poll_read().is_some() {}
        self.stats.asked = self.feedback.asked.load(Relaxed);
        let requested = self.feedback.keyframes.load(Relaxed);
        if requested > self.stats.keyframes_requested {
            self.stats.keyframes_requested = requested;
            let jumped = self.player.as_mut().is_some_and(|player| player.jump(now));
            self.stats.jumps += u64::from(jumped);
        }
    }

    fn play(&mut self, now: Instant) -> Result<(), CliError> {
        if self.state != PublishState::Playing {
            return Ok(());
        }
        let Some(player) = &mut self.player else { return Ok(()) };
        while let Some((picture, ticks)) = player.due(now) {
            let Some(mut sender) = self.connection.rtp_sender(self.sender) else { break };
            // Modulo 2^32, like RTP timestamps.
            let timestamp = self.first_timestamp.wrapping_add(ticks as u32);
            let last = picture.payloads.len().saturating_sub(1);
            for (index, payload) in picture.payloads.iter().enumerate() {
                let header = rtp::header::Header {
                    version: 2,
                    marker: index == last,
                    payload_type: self.payload_type,
                    sequence_number: self.sequence,
                    timestamp,
                    ssrc: self.ssrc,
                    ..Default::default()
                };
                self.sequence = self.sequence.wrapping_add(1);
                let packet = rtp::Packet { header, payload: payload.clone() };
                sender.write_rtp(now, packet).map_err(failed(self.number, "media"))?;
            }
            self.stats.pictures += 1;
            self.played += picture.payloads.len() as u64;
        }
        if player.next_at().is_none() {
            self.state = PublishState::Lingering(now + LINGER);
        }
        Ok(())
    }

    fn write(&mut self, now: Instant) {
        while let Some(message) = self.connection.poll_write() {
            let bytes = message.message.to_vec();
            let to = message.transport.peer_addr;
            if network_sim::is_media(&bytes) {
                self.stats.packets += 1;
                self.stats.bytes += bytes.len() as u64;
            }
            if let Some(bytes) = self.network.take(to, bytes, now) {
                self.unsent.push_back((to, bytes));
            }
        }
        while let Some((to, bytes)) = self.network.due(now) {
            self.unsent.push_back((to, bytes));
        }
        while let Some((to, bytes)) = self.unsent.front() {
            match self.socket.send_to(bytes, to) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // After any other error the datagram counts as sent and is lost.
                Ok(_) | Err(_) => drop(self.unsent.pop_front()),
            }
        }
        while self.unsent.len() > UNSENT_MAX {
            self.unsent.pop_front();
            self.stats.lost += 1;
        }
    }
}

/// Returns a function that makes errors with the session's number and the failed step.
fn failed<E: std::fmt::Display>(session: usize, problem: &'static str) -> impl Fn(E) -> CliError {
    move |error| CliError::Check(format!("session {session}: {problem}: {error}"))
}

fn random() -> Result<[u32; 4], std::io::Error> {
    let mut bytes = [[0; 4]; 4];
    for word in &mut bytes {
        getrandom::fill(word).map_err(std::io::Error::other)?;
    }
    Ok(bytes.map(u32::from_be_bytes))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use media::Codec;

    use super::*;

    #[test]
    fn a_server_that_never_connects_is_unreachable() {
        let clip =
            ClipFile { codec: Codec::Vp8, fmtp: String::new(), pictures: Vec::new(), length: 0 };
        let (clip, jitter) = (Arc::new(clip), Duration::ZERO);
        let plan = PlaybackOptions { clip, repeats: false, loss: 0.0, jitter };
        let now = Instant::now();
        let offered = PublisherSession::offer(1, &plan, Ipv4Addr::LOCALHOST.into(), now);
        let (mut session, _) = offered.expect("an offer");
        session.drive(now).expect("there is time");
        let error = session.drive(now + CONNECT_WITHIN).expect_err("nobody answers");
        assert_eq!(error.exit(), Exit::Unreachable, "{error}");
    }
}
