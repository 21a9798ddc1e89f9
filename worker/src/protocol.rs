//! The messages between a server and its media workers.
//!
//! A message is a `u32` length, a version byte, a tag byte and the values of one variant; nothing
//! is longer than [`MESSAGE_BYTES_MAX`]. There is a message for records of frames and for coded bytes, and
//! none for other pixels. Parsing refuses, and never panics on, any bytes that are not a message.

use std::fmt;

use decode::{
    Backend, BackendError, CodecProbeResult, DecodeError, DeviceSpec, ExcerptContainer,
    ExcerptStart, FileReport, Sampling, StreamInfo,
};
use gate::{ActivityState, GateConfig};
use media::{Codec, PixelsLost, Timestamp, WallTime};

use crate::{
    Capabilities, ExcerptEvent, Fault, JobEvent, JobOptions, Picture, Resume, SandboxLevel,
    SandboxReport, Spent,
    sandbox::Confinement,
    session::{SessionEvent, SessionSpec},
    wire::{ProtocolError, Reader, Wire, wire_enum, wire_struct},
};

/// Version of the messages; both ends are one binary, so another version is an error.
const VERSION: u8 = 1;

/// Longest message: that of a frame with a still of the largest picture, which is below 50 MB, and a view.
pub(crate) const MESSAGE_BYTES_MAX: u32 = 64 << 20;

/// Bytes in front of the payload: the length.
pub(crate) const HEADER_BYTES: usize = 4;

/// Message of a server to a worker.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Request {
    /// Comes first: enter the sandbox.
    Confine(Confinement),
    /// Analyse a source.
    Job { source: Source, options: JobOptions },
    /// The answer to [`Reply::Open`]; the read end of a pipe comes along.
    Resource { url: String, size: Option<u64>, seekable: bool },
    /// Start a live session under a number of the server's choice.
    OpenSession { session: u32, spec: SessionSpec },
    /// The next picture of a session, answered by [`Reply::Taken`].
    AccessUnit { session: u32, pts: Timestamp, keyframe: bool, follows_gap: bool, data: Vec<u8> },
    /// No picture follows; answered by [`Reply::Taken`].
    CloseSession { session: u32 },
    /// The answer to [`Reply::Program`], which comes twice: with the socket that is the program's input
    /// and output, then with the pipe of what it says.
    Program,
    /// Scale a still down, its longer edge to `edge_max`; answered by [`Reply::Shrunk`].
    Shrink { jpeg: Vec<u8>, edge_max: u32 },
    /// Cut a part out of the file whose descriptor comes along, `len` bytes of it; what it gives is told by
    /// [`Reply::Excerpt`].
    Excerpt { len: u64, from_ms: i64, to_ms: i64 },
    /// Try what the sandbox must refuse.
    Probe,
    /// Try what a worker is for.
    Look,
}

/// Source of a job's media.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Source {
    /// The file whose descriptor comes along; `len` bytes of it.
    File { len: u64 },
    /// URL that the server opens when it is asked to.
    Remote { url: String, playlists: bool },
    /// The RTSP server at the other end of the connection that comes along.
    Rtsp { url: String, credentials: Option<Credentials> },
}

/// Credentials for a source.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub user: String,
    pub password: String,
}

/// Has no place in a log.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

/// Message of a worker.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    /// The sandbox is entered; comes first.
    Confined(SandboxReport),
    /// About the file job.
    Job(JobEvent),
    /// The file job ended early.
    Failed(Fault),
    /// The job needs the bytes of `url` from byte `from` on, and waits for them.
    Open { url: String, from: u64 },
    /// The job needs a program that decodes `codec`, and waits for it.
    Program { codec: Codec },
    /// About a live session.
    Session { session: u32, event: SessionEvent },
    /// The device that measured live sessions was given up, for this reason: the CPU goes on.
    GateLost { reason: String },
    /// The device that measures live sessions was late with a batch: the CPU measured it.
    GateLate,
    /// The device that was to decode live sessions opens no more, for this reason: the CPU decodes.
    DecoderLost { reason: String },
    /// The session's latest unit, or its end, has been worked off; what it gave has been said.
    Taken { session: u32 },
    /// The still that was scaled down.
    Shrunk(Picture),
    /// About the excerpt.
    Excerpt(ExcerptEvent),
    /// Attempts and the error number of each, 0 for success.
    Probed(Vec<Attempt>),
    /// Result of [`Request::Look`].
    Able(Capabilities),
}

/// Something that a sandboxed process must not be able to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Name of the attempt.
    pub what: String,
    /// Error number of the refusal; `None` when it was allowed.
    pub errno: Option<i32>,
}

wire_enum!(Request, "request", {
    1 => Confine(confinement),
    2 => Job { source, options },
    3 => OpenSession { session, spec },
    4 => AccessUnit { session, pts, keyframe, follows_gap, data },
    5 => CloseSession { session },
    6 => Probe,
    7 => Resource { url, size, seekable },
    9 => Look,
    10 => Program,
    11 => Shrink { jpeg, edge_max },
    12 => Excerpt { len, from_ms, to_ms },
});
wire_enum!(Reply, "reply", {
    1 => Confined(report),
    2 => Job(event),
    3 => Failed(fault),
    4 => Session { session, event },
    5 => Taken { session },
    6 => Probed(attempts),
    7 => Open { url, from },
    9 => Able(capabilities),
    10 => GateLost { reason },
    11 => Program { codec },
    12 => DecoderLost { reason },
    13 => GateLate,
    14 => Shrunk(picture),
    15 => Excerpt(event),
});
wire_enum!(Source, "source", {
    1 => File { len },
    2 => Remote { url, playlists },
    3 => Rtsp { url, credentials },
});
wire_enum!(JobEvent, "job event", {
    1 => Opened(stream),
    2 => Progress { frames, pts_ms },
    3 => Frames(records),
    4 => Segment { next },
    5 => Done(report),
    6 => Spent(spent),
    7 => Measured(by),
});
wire_enum!(ExcerptEvent, "excerpt event", {
    1 => Begins(start),
    2 => Bytes(bytes),
    3 => Ended,
});
wire_enum!(ExcerptContainer, "excerpt container", {
    1 => Mp4,
    2 => Matroska,
});
wire_struct!(ExcerptStart { container, starts_at_ms });
wire_enum!(SessionEvent, "session event", {
    1 => Frames(records),
    2 => Damaged { detail },
    3 => Closed { frames, decoder },
    4 => Failed(fault),
});
wire_enum!(Fault, "fault", {
    1 => Decode(error),
    2 => Other { kind, message },
    3 => Unforeseen { frame_index },
    4 => Stopped,
    5 => Backend(error),
    6 => Gate(error),
    7 => PixelsLost(lost),
    8 => Source { is_refused, message },
    9 => Over,
});
wire_struct!(PixelsLost { reason });
wire_enum!(Backend, "backend", {
    0 => Software,
    1 => Nvdec,
    2 => Vaapi,
    3 => FfmpegCli,
});
wire_enum!(BackendError, "backend error", {
    1 => Library { library, reason },
    2 => NoVideoCapability { reason, capabilities },
    3 => NoDevice { device, reason },
    4 => RenderNode { reason, path },
    5 => NotBuilt { backend },
    6 => Refused { call, detail },
    7 => BadDevice { device, expected },
    8 => DecodesNothing { reason },
    9 => Program { searched },
    10 => ProgramVersion { program, said },
});
wire_enum!(DecodeError, "decode error", {
    1 => Empty,
    2 => UnsupportedContainer { name },
    3 => NestedResource { name },
    4 => DamagedHeader { container, detail },
    5 => NoVideoStream { streams },
    6 => TooManyStreams { count, max },
    7 => UnsupportedCodec { name },
    8 => PictureTooLarge { width, height, max },
    9 => UnsupportedPixelFormat { name },
    10 => NothingDecoded { damaged_packets },
    11 => DamagedUnit { detail },
    12 => WrongCodec { expected, got },
    13 => Libav { call, detail },
    14 => Thread { detail },
    15 => Input { detail },
    16 => TooManyPixels { width, height, max },
    17 => TooManyBytes { width, height, bytes, max },
    18 => NoKeyframe,
    19 => PastEnd { end_ms },
    20 => BeforeStart { start_ms },
});
wire_enum!(Sampling, "sampling", { 1 => Every, 2 => Fixed(rate) });
wire_enum!(SandboxLevel, "sandbox level", { 1 => Full, 2 => Partial { missing } });

wire_struct!(Capabilities { codecs, measurer });
wire_struct!(DeviceSpec { backend, device, capabilities });
wire_struct!(Spent { decode_us, gate_us });
wire_struct!(JobOptions { sampling, max_frames, stills, views, gate, zones, threads, resume });
wire_struct!(Resume { last, activity, begins_at_ms, segment });
wire_struct!(ActivityState { level, loud_ms, cut_ms });
wire_struct!(GateConfig {
    keepalive_frames,
    keepalive_ms,
    scene_cut,
    activity_on,
    activity_off,
    luma_shift,
    flicker,
    ghosting,
    noise
});
wire_struct!(SandboxReport { landlock_abi, seccomp, rlimits, level });
wire_struct!(Credentials { user, password });
wire_struct!(Attempt { what, errno });
wire_struct!(StreamInfo {
    codec,
    container,
    extent,
    rotation,
    layout,
    source_rate,
    duration,
    timebase,
    pixel_format,
    declared_frames,
    wall_start,
    is_endless,
});
wire_struct!(WallTime { epoch_ms });
wire_struct!(FileReport {
    decoder,
    fallback,
    frames,
    source_frames,
    source_rate,
    truncated,
    more_frames,
    damaged_packets,
    first_extent,
});

/// Text that is a constant of the program: the name of a codec. The names of libav's calls stay
/// whole by another way, see `From<DecodeError> for Fault`.
impl Wire for &'static str {
    fn put(&self, out: &mut Vec<u8>) {
        self.to_string().put(out);
    }

    fn get(from: &mut Reader<'_>) -> Result<&'static str, ProtocolError> {
        let text = String::get(from)?;
        let codec = Codec::ALL.into_iter().map(Codec::name).find(|name| *name == text);
        Ok(codec.unwrap_or("libav"))
    }
}

impl Wire for CodecProbeResult {
    fn put(&self, out: &mut Vec<u8>) {
        let CodecProbeResult { codec, bits, decoder, reason } = self;
        codec.put(out);
        out.push(*bits);
        decoder.put(out);
        reason.put(out);
    }

    fn get(from: &mut Reader<'_>) -> Result<CodecProbeResult, ProtocolError> {
        let (codec, bits) = (Wire::get(from)?, from.byte("bits")?);
        Ok(CodecProbeResult { codec, bits, decoder: Wire::get(from)?, reason: Wire::get(from)? })
    }
}

/// Appends `message` to `out` as it goes over the socket.
///
/// A message over the bound is refused here, so that the other end need not end the connection.
pub(crate) fn encode(message: &impl Wire, out: &mut Vec<u8>) -> Result<(), ProtocolError> {
    let start = out.len();
    out.extend([0; HEADER_BYTES]);
    out.push(VERSION);
    message.put(out);
    let len = out.len() - start - HEADER_BYTES;
    if len > MESSAGE_BYTES_MAX as usize {
        out.truncate(start);
        return Err(ProtocolError::TooLong(u32::try_from(len).unwrap_or(u32::MAX)));
    }
    out[start..start + HEADER_BYTES].copy_from_slice(&(len as u32).to_le_bytes());
    Ok(())
}

/// Bytes of the payload behind this header.
pub(crate) fn payload_len(header: [u8; HEADER_BYTES]) -> Result<usize, ProtocolError> {
    match u32::from_le_bytes(header) {
        len if len > MESSAGE_BYTES_MAX => Err(ProtocolError::TooLong(len)),
        len => Ok(len as usize),
    }
}

/// The message in a payload.
pub(crate) fn decode<T: Wire>(payload: &[u8]) -> Result<T, ProtocolError> {
    message(Reader::new(payload))
}

/// As [`decode()`], of what a worker says: its text is cut and escaped.
pub(crate) fn decode_told<T: Wire>(payload: &[u8]) -> Result<T, ProtocolError> {
    message(Reader::told(payload))
}

fn message<T: Wire>(mut reader: Reader<'_>) -> Result<T, ProtocolError> {
    match reader.byte("version")? {
        VERSION => {}
        other => return Err(ProtocolError::Version(other)),
    }
    let message = T::get(&mut reader)?;
    reader.finish()?;
    Ok(message)
}

#[cfg(test)]
mod tests;
