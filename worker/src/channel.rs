//! Messages over the control socket, which is a byte stream: messages are split and joined here.

use std::{
    collections::VecDeque,
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    ops::Range,
    os::fd::{BorrowedFd, OwnedFd},
};

use rustix::{
    buffer::spare_capacity,
    io::{Errno, retry_on_intr},
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv, recvmsg, send, sendmsg,
        socketpair,
    },
};

use crate::wire::{HEADER_BYTES, Message, WireError, decode, encode, payload_len};

/// Bytes read from the socket at a time; its own buffer is about three times that.
const READ_BYTES: usize = 64 << 10;

/// Capacity of a buffer that is kept for the next messages; more, from a large picture, is freed.
pub(crate) const KEPT_BYTES: usize = 1 << 20;

/// Descriptors that may wait for their message; any more are closed.
const DESCRIPTORS_MAX: usize = 2;

/// Creates a pair of connected sockets, one for each process.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

/// Received bytes that are not parsed yet.
#[derive(Default)]
pub(crate) struct ReceiveBuffer {
    bytes: Vec<u8>,
    start: usize,
    total: u64,
    /// Bytes of the last message taken.
    last: u64,
    descriptors: VecDeque<OwnedFd>,
}

impl ReceiveBuffer {
    /// Returns the payload bytes of the message that [`ReceiveBuffer::next`] returned last.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Returns the number of bytes received so far.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Receives without waiting; `Some(0)` is the end of the stream, `None` that nothing has arrived.
    pub fn fill(&mut self, socket: BorrowedFd<'_>) -> io::Result<Option<usize>> {
        self.bytes.reserve(READ_BYTES);
        let received = retry_on_intr(|| {
            let space = spare_capacity(&mut self.bytes);
            recv(socket, space, RecvFlags::DONTWAIT).map(|(_, len)| len)
        });
        match received {
            Ok(len) => {
                self.total += len as u64;
                Ok(Some(len))
            }
            Err(Errno::AGAIN) => Ok(None),
            // A killed peer that left bytes unread resets the connection.
            Err(Errno::CONNRESET) => Ok(Some(0)),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for bytes and keeps descriptors that come with them; 0 is the end of the stream.
    pub fn wait(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let end = self.bytes.len();
        self.bytes.resize(end + READ_BYTES, 0);
        let received = retry_on_intr(|| {
            let mut target = [IoSliceMut::new(&mut self.bytes[end..])];
            recvmsg(socket, &mut target, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
        });
        let len = received.as_ref().map_or(0, |message| message.bytes);
        self.bytes.truncate(end + len);
        received?;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.descriptors.extend(descriptors);
                self.descriptors.truncate(DESCRIPTORS_MAX);
            }
        }
        Ok(len)
    }

    pub fn next<T: Message>(&mut self) -> Result<Option<T>, WireError> {
        let Some(payload) = self.whole_payload()? else {
            // Moves the partial message to the front of the buffer, where its rest is appended.
            self.bytes.drain(..self.start);
            self.start = 0;
            return Ok(None);
        };
        self.start = payload.end;
        self.last = payload.len() as u64;
        decode(&self.bytes[payload]).map(Some)
    }

    fn whole_payload(&self) -> Result<Option<Range<usize>>, WireError> {
        let start = self.start + HEADER_BYTES;
        let Some(header) = self.bytes[self.start..].first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let end = start + payload_len(*header)?;
        Ok((end <= self.bytes.len()).then_some(start..end))
    }

    /// Takes the oldest received descriptor, which belongs to the last message.
    pub fn descriptor(&mut self) -> Result<OwnedFd, WireError> {
        self.descriptors.pop_front().ok_or(WireError::NoDescriptor)
    }
}

/// Sends all bytes; blocks while the peer does not read.
pub(crate) fn send_all(socket: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let len = retry_on_intr(|| send(socket, bytes, SendFlags::NOSIGNAL))?;
        bytes = &bytes[len..];
    }
    Ok(())
}

/// Sends one small message with a descriptor on its first byte, without waiting for room.
pub(crate) fn send_with(
    socket: BorrowedFd<'_>,
    message: &impl Message,
    descriptor: BorrowedFd<'_>,
) -> io::Result<()> {
    let mut bytes = Vec::new();
    encode(message, &mut bytes).map_err(io::Error::other)?;
    send_descriptors(socket, &bytes, &[descriptor])
}

/// Sends a few bytes with descriptors on the first one, without waiting for room.
pub(crate) fn send_descriptors(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("no room for the descriptors"));
    }
    let (parts, flags) = ([IoSlice::new(bytes)], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    let sent = retry_on_intr(|| sendmsg(socket, &parts, &mut ancillary, flags))?;
    // Sockets take so small a message whole or not at all.
    if sent < bytes.len() { Err(Errno::AGAIN.into()) } else { Ok(()) }
}

/// Messages for a worker, queued until its socket takes them.
#[derive(Default)]
pub(crate) struct SendQueue {
    bytes: Vec<u8>,
    /// Bytes of the front that have been sent.
    start: usize,
}

impl SendQueue {
    pub fn push(&mut self, message: &impl Message) -> Result<(), WireError> {
        encode(message, &mut self.bytes)
    }

    pub fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Sends as much as the socket takes without waiting.
    pub fn send(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        while self.len() > 0 {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match retry_on_intr(|| send(socket, &self.bytes[self.start..], flags)) {
                Ok(len) => self.start += len,
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(error.into()),
            }
        }
        self.bytes.drain(..self.start);
        self.start = 0;
        if self.bytes.capacity() > KEPT_BYTES {
            self.bytes.shrink_to(self.bytes.len());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Read, os::fd::AsFd};

    use super::*;
    use crate::{
        JobOptions,
        protocol::{InputSource, WorkerRequest},
    };

    fn job(len: u64) -> WorkerRequest {
        let options = JobOptions::default();
        WorkerRequest::Job { source: InputSource::File { len }, options }
    }

    #[test]
    fn every_input_comes_with_its_own_message() {
        let (ours, theirs) = pair().expect("a socket pair");
        let folder = tempfile::tempdir().expect("a folder");
        for (len, text) in [(3, "one"), (5, "three")] {
            let path = folder.path().join(text);
            std::fs::write(&path, text).expect("written");
            let file = File::open(&path).expect("opens");
            send_with(ours.as_fd(), &job(len), file.as_fd()).expect("sent");
        }
        drop(ours);
        let mut incoming = ReceiveBuffer::default();
        for (len, text) in [(3, "one"), (5, "three")] {
            let request: WorkerRequest = loop {
                if let Some(request) = incoming.next().expect("a message") {
                    break request;
                }
                assert_ne!(incoming.wait(theirs.as_fd()).expect("readable"), 0);
            };
            assert_eq!(request, job(len));
            let mut got = String::new();
            let mut file = File::from(incoming.descriptor().expect("a descriptor"));
            file.read_to_string(&mut got).expect("readable");
            assert_eq!(got, text);
        }
        assert_eq!(incoming.descriptor().err(), Some(WireError::NoDescriptor));
        assert_eq!(incoming.wait(theirs.as_fd()).expect("the end"), 0);
    }

    #[test]
    fn a_message_may_arrive_byte_by_byte() {
        let (ours, theirs) = pair().expect("a socket pair");
        let mut bytes = Vec::new();
        for len in [1, 2] {
            encode(&job(len), &mut bytes).expect("below the bound");
        }
        let mut incoming = ReceiveBuffer::default();
        let mut got = Vec::new();
        assert_eq!(incoming.fill(theirs.as_fd()).expect("nothing yet"), None);
        for byte in &bytes {
            send_all(ours.as_fd(), std::slice::from_ref(byte)).expect("sent");
            assert_eq!(incoming.fill(theirs.as_fd()).expect("readable"), Some(1));
            got.extend(incoming.next::<WorkerRequest>().expect("no damage"));
        }
        assert_eq!(got, [job(1), job(2)]);
        assert_eq!(incoming.total(), bytes.len() as u64);
    }

    #[test]
    fn a_message_that_is_always_cut_leaves_nothing_behind() {
        let (ours, theirs) = pair().expect("a socket pair");
        let mut message = Vec::new();
        encode(&job(1), &mut message).expect("below the bound");
        // Every read ends inside the next message's header.
        let mut stream: VecDeque<u8> = message.repeat(1001).into();
        stream.truncate(1000 * message.len() + 3);
        let first: Vec<u8> = stream.drain(..3).collect();
        send_all(ours.as_fd(), &first).expect("sent");
        let mut incoming = ReceiveBuffer::default();
        incoming.fill(theirs.as_fd()).expect("readable");
        for _ in 0..1000 {
            let piece: Vec<u8> = stream.drain(..message.len()).collect();
            send_all(ours.as_fd(), &piece).expect("sent");
            incoming.fill(theirs.as_fd()).expect("readable");
            assert_eq!(incoming.next().expect("no damage"), Some(job(1)));
            assert_eq!(incoming.next::<WorkerRequest>().expect("no damage"), None);
            assert_eq!(incoming.bytes.len(), 3);
        }
    }

    #[test]
    fn what_the_socket_does_not_take_waits() {
        let (ours, theirs) = pair().expect("a socket pair");
        let data = vec![7; 1 << 20];
        let unit = WorkerRequest::AccessUnit {
            session: 1,
            pts: media::Timestamp::from_millis(0),
            keyframe: true,
            follows_gap: false,
            data,
        };
        let mut backlog = SendQueue::default();
        backlog.push(&unit).expect("below the bound");
        backlog.send(ours.as_fd()).expect("sent");
        assert!(backlog.len() > 0, "a socket does not hold a megabyte");
        let mut incoming = ReceiveBuffer::default();
        while backlog.len() > 0 {
            incoming.fill(theirs.as_fd()).expect("readable");
            backlog.send(ours.as_fd()).expect("sent");
        }
        while incoming.fill(theirs.as_fd()).expect("readable").is_some() {}
        assert_eq!(incoming.next().expect("no damage"), Some(unit));
    }
}
