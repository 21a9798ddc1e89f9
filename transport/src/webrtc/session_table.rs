//! All sessions of an endpoint, and the mapping of datagrams to sessions (RFC 7983, RFC 8445 2).
//!
//! STUN is mapped by the user fragment that it names, everything else by a source address learned from an
//! authenticated check. Promises that the tables hold only entries of live sessions. Reads no clock and no
//! socket.

use std::{
    collections::{BTreeSet, HashMap, hash_map::Entry},
    net::SocketAddr,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use super::{
    EndpointConfig, SessionEvent, SessionFailure,
    command_queue::{CommandQueue, EndpointCommand, NewSession},
    dtls::DtlsIdentity,
    ice::CheckOutcome,
    random,
    session::Session,
    socket::{CandidatePair, SendBuffer},
    stats::DropReason,
    stun::{BindingRequest, StunParseError},
    token_bucket::AuthFailureLimiter,
};

/// Shortest delay of a session's next poll, so that no session can keep the thread from the others.
const SOONEST: Duration = Duration::from_millis(1);
/// Time after an authenticated message during which a session keeps its address: media arrives more often,
/// and a handshake takes less.
const SPEAKS: Duration = Duration::from_secs(2);

/// Session that owns an address. Anyone with a session can claim any address by forged checks; only the true
/// owner can send its media or finish its handshake.
struct Owner {
    id: u64,
    /// Time of the last proof; without proof, of the first message.
    heard_at: Instant,
    /// True if the session's media, or the end of its handshake, came from the address.
    is_proven: bool,
    /// Previous session with proof, if this one has none; new proof returns the address to it.
    before: Option<u64>,
}

pub(super) struct SessionTable {
    shared: Arc<CommandQueue>,
    identity: Arc<DtlsIdentity>,
    settings: EndpointConfig,
    /// Boxed, so that the capacity left by ten thousand ended sessions is small.
    peers: HashMap<u64, Box<Session>>,
    users: HashMap<String, u64>,
    addresses: HashMap<SocketAddr, Owner>,
    sources: AuthFailureLimiter,
    /// Next poll of each session, ordered by time.
    timers: BTreeSet<(Instant, u64)>,
    touched: Vec<u64>,
    send_buffer: SendBuffer,
}

impl SessionTable {
    pub(super) fn new(
        shared: Arc<CommandQueue>,
        identity: Arc<DtlsIdentity>,
        settings: EndpointConfig,
        now: Instant,
    ) -> SessionTable {
        SessionTable {
            shared,
            identity,
            settings,
            peers: HashMap::new(),
            users: HashMap::new(),
            addresses: HashMap::new(),
            sources: AuthFailureLimiter::new(now),
            timers: BTreeSet::new(),
            touched: Vec::new(),
            send_buffer: SendBuffer::default(),
        }
    }

    /// Returns the time at which [`SessionTable::flush_session`] is next needed.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    pub(super) fn handle_command(&mut self, now: Instant) {
        for command in self.shared.take() {
            match command {
                EndpointCommand::Open(opening) => self.open(*opening, now),
                EndpointCommand::Restart { id, local } => {
                    let Some(peer) = self.peers.get_mut(&id) else { continue };
                    let older = peer.agent.restart(&local);
                    self.users.insert(local.ufrag, id);
                    self.retire(older, id);
                }
                EndpointCommand::Keyframe(id) => {
                    if let Some(peer) = self.peers.get_mut(&id) {
                        peer.feedback.keyframe_wanted = true;
                        touch(&mut self.touched, id, peer);
                    }
                }
                EndpointCommand::Close(id) => self.remove(id, None, now),
                #[cfg(test)]
                EndpointCommand::Fail => panic!("a test asked for it"),
            }
        }
    }

    fn open(&mut self, opening: NewSession, now: Instant) {
        let id = opening.id;
        self.users.insert(opening.local.ufrag.clone(), id);
        // A collision of own SSRCs is harmless, because each session has its own keys.
        let us = random::number().map_or(1, |number| number as u32);
        let mut peer = Box::new(Session::new(opening, us, &self.settings, now));
        let at = peer.deadline();
        arm(&mut self.timers, id, &mut peer, at);
        self.peers.insert(id, peer);
    }

    /// Assigns an address after an authenticated check: to the newest session, since a client may reuse its
    /// port, unless another session was active on the address recently.
    fn claim(&mut self, address: SocketAddr, id: u64, now: Instant) {
        let claimed = |before| Owner { id, heard_at: now, is_proven: false, before };
        let owner = match self.addresses.entry(address) {
            Entry::Vacant(entry) => {
                entry.insert(claimed(None));
                return;
            }
            Entry::Occupied(entry) => entry.into_mut(),
        };
        if owner.before == Some(id) {
            *owner = Owner { is_proven: true, ..claimed(None) };
        } else if owner.id == id && owner.is_proven {
            owner.heard_at = now;
        } else if owner.id != id && now.saturating_duration_since(owner.heard_at) >= SPEAKS {
            let before = if owner.is_proven { Some(owner.id) } else { owner.before };
            *owner = claimed(before);
        }
    }

    /// Removes a session's claim to an address.
    fn release(&mut self, address: &SocketAddr, id: u64, now: Instant) {
        let Some(owner) = self.addresses.get_mut(address) else { return };
        match owner.before {
            Some(before) if owner.id == id => {
                *owner = Owner { id: before, heard_at: now, is_proven: true, before: None };
            }
            Some(before) if before == id => owner.before = None,
            _ if owner.id == id => drop(self.addresses.remove(address)),
            _ => {}
        }
    }

    fn retire(&mut self, ufrag: Option<String>, id: u64) {
        if let Some(ufrag) = ufrag.filter(|ufrag| self.users.get(ufrag) == Some(&id)) {
            self.users.remove(&ufrag);
        }
    }

    /// Processes one datagram; media is decrypted in place.
    pub(super) fn datagram(&mut self, datagram: &mut [u8], pair: CandidatePair, now: Instant) {
        let taken = match datagram.first() {
            Some(0..=3) => self.stun(datagram, pair, now),
            Some(20..=63) | Some(128..=191) => self.known(datagram, pair, now),
            _ => Err(DropReason::Unrecognised),
        };
        if let Err(why) = taken {
            self.shared.counts.refuse(why);
        }
    }

    fn known(
        &mut self,
        datagram: &mut [u8],
        pair: CandidatePair,
        now: Instant,
    ) -> Result<(), DropReason> {
        let owner = self.addresses.get_mut(&pair.remote).ok_or(DropReason::UnknownSource)?;
        let is_media = datagram[0] >= 128;
        if is_media
            && let Some(id) = owner.before
            && let Some(peer) = self.peers.get_mut(&id)
            // Decryption changes the datagram, which may belong to the other session, so it works on a copy.
            && peer.media(&mut datagram.to_vec(), now) == Ok(true)
        {
            *owner = Owner { id, heard_at: now, is_proven: true, before: None };
            touch(&mut self.touched, id, peer);
            return Ok(());
        }
        let peer = self.peers.get_mut(&owner.id).ok_or(DropReason::UnknownSource)?;
        let (taken, proves) = if is_media {
            let taken = peer.media(datagram, now);
            (taken.map(|_| ()), taken == Ok(true))
        } else {
            let was_connected = peer.is_connected();
            let taken = peer.dtls(datagram, pair, &self.identity, &mut self.send_buffer, now);
            (taken, !was_connected && peer.is_connected())
        };
        if proves {
            *owner = Owner { id: owner.id, heard_at: now, is_proven: true, before: None };
        }
        touch(&mut self.touched, owner.id, peer);
        taken
    }

    /// Returns the session of the user fragment that a request names.
    fn user(&self, request: &BindingRequest<'_>) -> Option<u64> {
        request.users().and_then(|(ours, _)| self.users.get(ours).copied())
    }

    fn stun(
        &mut self,
        datagram: &[u8],
        pair: CandidatePair,
        now: Instant,
    ) -> Result<(), DropReason> {
        let request = match BindingRequest::parse(datagram) {
            Ok(request) => request,
            // Keep-alives are indications, and this side sends no requests that could be answered.
            Err(StunParseError::Other) => return Ok(()),
            Err(StunParseError::Malformed) => return Err(DropReason::StunMalformed),
        };
        let source = pair.remote.ip();
        let mut id = self.user(&request);
        if id.is_none() && self.shared.has_commands() {
            // A check may overtake the command that opens its session.
            self.handle_command(now);
            id = self.user(&request);
        }
        let peer = id.and_then(|id| self.peers.get_mut(&id).map(|peer| (id, peer)));
        let Some((id, peer)) = peer else { return Err(DropReason::StunUnknownUser) };
        let is_known = self.addresses.contains_key(&pair.remote);
        if !is_known && !self.sources.allows(source, now) {
            return Err(DropReason::StunLimited);
        }
        match peer.check(&request, pair, &mut self.send_buffer, now) {
            CheckOutcome::Unauthenticated => {
                self.sources.failed(source, now);
                return Err(DropReason::StunUnauthenticated);
            }
            CheckOutcome::Refused => {}
            CheckOutcome::Accepted { forgot, retired } => {
                touch(&mut self.touched, id, peer);
                self.claim(pair.remote, id, now);
                if let Some(forgot) = forgot {
                    self.release(&forgot.remote, id, now);
                }
                self.retire(retired, id);
            }
        }
        Ok(())
    }

    /// Polls the sessions with new input and those whose timers have expired.
    pub(super) fn flush_session(&mut self, now: Instant) {
        while let Some((_, id)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.pop_first();
            if let Some(peer) = self.peers.get_mut(&id) {
                peer.timer = None;
                touch(&mut self.touched, id, peer);
            }
        }
        let mut touched = std::mem::take(&mut self.touched);
        for id in touched.drain(..) {
            let Some(peer) = self.peers.get_mut(&id) else { continue };
            peer.poll_output(&mut self.send_buffer, now);
            match peer.ended {
                None => {
                    let at = peer.deadline().max(now + SOONEST);
                    arm(&mut self.timers, id, peer, at);
                }
                Some(told) => self.remove(id, Some(told), now),
            }
        }
        self.touched = touched;
    }

    fn remove(&mut self, id: u64, told: Option<SessionEvent>, now: Instant) {
        let Some(mut peer) = self.peers.remove(&id) else { return };
        peer.close(told, &mut self.send_buffer, now);
        if let Some(at) = peer.timer {
            self.timers.remove(&(at, id));
        }
        for ufrag in peer.agent.ufrags() {
            if self.users.get(ufrag) == Some(&id) {
                self.users.remove(ufrag);
            }
        }
        for pair in peer.agent.pairs() {
            self.release(&pair.remote, id, now);
        }
        self.shared.counts.sessions.fetch_sub(1, Relaxed);
    }

    pub(super) fn end(&mut self, now: Instant) {
        self.handle_command(now);
        let ids: Vec<u64> = self.peers.keys().copied().collect();
        for id in ids {
            let ended = self.peers.get(&id).and_then(|peer| peer.ended);
            let told = ended.unwrap_or(SessionEvent::Failed(SessionFailure::PortEnded));
            self.remove(id, Some(told), now);
        }
    }

    pub(super) fn send(&mut self, each: impl FnMut(CandidatePair, &[u8])) {
        self.send_buffer.drain(each);
    }
}

/// Schedules a poll of a session no later than `at`. An earlier entry stays: an early poll costs less than moving
/// the entry with every packet.
fn arm(timers: &mut BTreeSet<(Instant, u64)>, id: u64, peer: &mut Session, at: Instant) {
    if peer.timer.is_some_and(|armed| armed <= at) {
        return;
    }
    if let Some(later) = peer.timer.replace(at) {
        timers.remove(&(later, id));
    }
    timers.insert((at, id));
}

/// Marks a session for the next poll.
fn touch(touched: &mut Vec<u64>, id: u64, peer: &mut Session) {
    if !peer.touched {
        peer.touched = true;
        touched.push(id);
    }
}

#[cfg(test)]
mod tests;
