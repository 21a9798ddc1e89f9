//! Live media from an RTSP server, over a connection that the media server has opened.
//!
//! `client` is the protocol; this module waits, sends and reads. Promises one RTP or RTCP packet per read.
//! Silence is bounded by the socket's own timeouts.

mod auth;
mod client;
mod clock;
mod description;
mod error;
#[cfg(any(test, fuzzing))]
pub mod fuzz;

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    io::{self, Read},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    time::{Duration, Instant},
};

use client::{RtspClient, RtspEvent};
use clock::Clock;
use decode::{DemuxLimits, Demuxer};
use error::RtspError;
use rustix::{
    io::Errno,
    net::{SendFlags, send},
};

use super::SourceErrorCell;
use crate::{JobFault, protocol::RtspCredentials, sandbox::SOCKET_NUMBER};

/// Time limit of the exchange before the first packet.
const CONVERSATION_MAX: Duration = Duration::from_secs(30);

const READ_BYTES: usize = 64 << 10;

/// Requests the media at `url` from the server behind `socket`, and opens it.
pub(super) fn open(
    socket: OwnedFd,
    url: String,
    credentials: Option<RtspCredentials>,
    trouble: &SourceErrorCell,
) -> Result<Demuxer, JobFault> {
    if socket.as_raw_fd() != SOCKET_NUMBER {
        return Err(RtspError::Connection(Errno::BADF.into()).into());
    }
    let client = RtspClient::new(url, credentials, &once());
    let mut packets = Packets {
        socket,
        client,
        clock: Clock::default(),
        trouble: trouble.clone(),
        buffer: vec![0; READ_BYTES],
        said: Instant::now(),
        has_packets: false,
    };
    let started = Instant::now();
    let description = loop {
        match packets.client.poll()? {
            Some(RtspEvent::Ready(description)) => break description,
            // Packets before the request to play belong to no stream.
            Some(RtspEvent::Packet(_)) => {}
            None if started.elapsed() > CONVERSATION_MAX => return Err(RtspError::Silent.into()),
            None => packets.exchange()?,
        }
    };
    packets.say()?;
    let has_end = packets.client.has_end();
    let demuxer = Demuxer::open_rtp(&description, Box::new(packets), DemuxLimits::default())?;
    Ok(if has_end { demuxer } else { demuxer.endless() })
}

/// Returns a random text, for use as a nonce.
fn once() -> String {
    format!("{:016x}", RandomState::new().build_hasher().finish())
}

struct Packets {
    socket: OwnedFd,
    client: RtspClient,
    clock: Clock,
    trouble: SourceErrorCell,
    buffer: Vec<u8>,
    /// Time of the last message to the server.
    said: Instant,
    has_packets: bool,
}

impl Packets {
    /// Sends pending messages, then waits for the next bytes.
    fn exchange(&mut self) -> Result<(), RtspError> {
        self.say()?;
        loop {
            match rustix::io::read(&self.socket, &mut self.buffer[..]) {
                Ok(0) => return Err(self.client.ended()),
                Ok(len) => {
                    self.client.push(&self.buffer[..len]);
                    return Ok(());
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Err(RtspError::Silent),
                Err(error) => return Err(RtspError::Connection(error.into())),
            }
        }
    }

    fn say(&mut self) -> Result<(), RtspError> {
        let words = self.client.take_output();
        let mut rest = words.as_slice();
        while !rest.is_empty() {
            match send(self.socket.as_fd(), rest, SendFlags::NOSIGNAL) {
                Ok(len) => rest = &rest[len..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Err(RtspError::Silent),
                Err(error) => return Err(RtspError::Connection(error.into())),
            }
            self.said = Instant::now();
        }
        Ok(())
    }

    fn next(&mut self) -> Result<Vec<u8>, RtspError> {
        loop {
            match self.client.poll()? {
                Some(RtspEvent::Packet(mut packet)) => {
                    let at = (!self.client.has_end()).then(Instant::now);
                    if self.clock.set(&mut packet, at) {
                        return Ok(packet);
                    }
                }
                Some(RtspEvent::Ready(_)) => {}
                None => {
                    if self.said.elapsed() > self.client.keep_alive_every() {
                        self.client.keep_alive();
                    }
                    self.exchange()?;
                }
            }
        }
    }
}

impl Read for Packets {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self.next() {
            Ok(packet) => {
                self.has_packets = true;
                let len = packet.len().min(out.len());
                out[..len].copy_from_slice(&packet[..len]);
                Ok(len)
            }
            // Packets before the error are a result; without packets the error is the outcome.
            Err(error) if self.has_packets => Err(self.trouble.suspect(error)),
            Err(error) => Err(self.trouble.note(error)),
        }
    }
}

impl Drop for Packets {
    fn drop(&mut self) {
        self.client.tear_down();
        let words = self.client.take_output();
        // Best effort: the connection closes now, which ends the session anyway.
        send(self.socket.as_fd(), &words, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).ok();
    }
}
