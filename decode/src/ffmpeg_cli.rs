//! External ffmpeg program as a decoder: coded pictures on its stdin, raw ones on its stdout.
//!
//! The program gets one stream as IVF, whose times are our own integers, and outputs NUT, which keeps them.
//! It uses the same decoder as libav would, so that its bits are the same. An error on its stderr, a missing
//! picture, a change of the stream's size or format, or unexpected output ends it, and libav's own decoder
//! continues. Starts no process: the owner of the sandbox does.

mod format_change;
mod ivf;
mod pipe_threads;
mod stderr_scan;

use std::{
    collections::BTreeSet,
    io::{self, Read, Write},
    sync::Arc,
};

use media::Codec;

use crate::{
    BackendError, DecodeError,
    decoder::{DecoderFactory, FrameDecoder},
    ffi::{AvError, AvFrame, DecoderSetup, Packet, decoder_name},
};
use format_change::FormatChangeDetector;
use ivf::InBandRewriter;
use pipe_threads::PipeThreads;

/// Offset of all times, so that none is negative.
const TIME_ZERO: i64 = 1 << 40;
/// libav's value for no time.
const NO_TIME: i64 = i64::MIN;
/// Upper limit of times that keep their value in every unit that the program counts in.
const TIME_MAX: i64 = 1 << 50;

/// Pipes of a started program.
pub struct FfmpegPipes {
    /// Stdin of the program.
    pub input: Box<dyn Write + Send>,
    /// Signals that nothing follows on stdin.
    pub end: Box<dyn FnOnce() -> io::Result<()> + Send>,
    /// Stdout of the program, up to its end.
    pub output: Box<dyn Read + Send>,
    /// Stderr of the program; reading never blocks, and text that does not fit is dropped.
    pub said: Box<dyn Read + Send>,
    /// Closes stdin and stdout, and wakes threads that wait at them.
    pub hang_up: Box<dyn FnOnce() -> io::Result<()> + Send>,
}

/// Starts the program with the [`arguments`] for this codec.
pub type SpawnFn = dyn Fn(Codec) -> io::Result<FfmpegPipes> + Send + Sync;

/// Returns the program's arguments for decoding a stream of `codec` on `threads` threads.
pub fn arguments(codec: Codec, threads: usize) -> Vec<String> {
    let decoder = decoder_name(codec).to_string_lossy().into_owned();
    // The H.264 decoder reports concealed damage at level `info`.
    let line = format!(
        "-hide_banner -nostdin -nostats -loglevel repeat+level+info -xerror -err_detect explode -copyts \
         -dts_error_threshold 1000000000000 -noautorotate -filter_threads 1 -threads {threads} \
         -f ivf -c:v {decoder} -i pipe:0 -map 0:v:0 -fps_mode passthrough -enc_time_base -1 \
         -autoscale 0 -c:v rawvideo -f nut -flush_packets 1 pipe:1"
    );
    line.split_whitespace().map(str::to_owned).collect()
}

/// Opens decoders that are external programs.
pub(crate) struct FfmpegFactory {
    pub(crate) start: Arc<SpawnFn>,
}

impl DecoderFactory for FfmpegFactory {
    fn open(&self, setup: DecoderSetup<'_>) -> Result<Box<dyn FrameDecoder>, BackendError> {
        let DecoderSetup { codec, parameters, limits, .. } = setup;
        let refused =
            |detail: String| BackendError::unavailable(format!("ffmpeg failed: {detail}"));
        let Some(parameters) = parameters else {
            return Err(refused("it does not decode pictures as they come".to_owned()));
        };
        let extent = parameters.extent().ok_or_else(|| refused("no picture size".to_owned()))?;
        let rewriter = InBandRewriter::new(codec, parameters.extradata())
            .ok_or_else(|| refused(format!("it is not used for {}", codec.as_str())))?;
        let conversation = (self.start)(codec).map_err(|error| refused(error.to_string()))?;
        let talk = PipeThreads::start(conversation, ivf::header(codec, extent), limits)
            .map_err(|error| refused(error.to_string()))?;
        Ok(Box::new(ProgramDecoder {
            name: format!("ffmpeg-cli:{}", decoder_name(codec).to_string_lossy()),
            is_full_range: parameters.is_full_range(),
            rewriter,
            geometry: FormatChangeDetector::new(codec),
            talk,
            discarded: BTreeSet::new(),
            is_untimed: None,
            last: None,
            lost: None,
        }))
    }

    fn is_continuous(&self) -> bool {
        true
    }
}

struct ProgramDecoder {
    name: String,
    /// Sample range of the stream, which NUT does not carry.
    is_full_range: bool,
    rewriter: InBandRewriter,
    geometry: FormatChangeDetector,
    talk: PipeThreads,
    /// Times of pictures that are not shown.
    discarded: BTreeSet<i64>,
    /// True if the packets have no times; `None` before the first.
    is_untimed: Option<bool>,
    /// Time of the previous frame.
    last: Option<i64>,
    lost: Option<String>,
}

impl ProgramDecoder {
    fn lose(&mut self, reason: impl Into<String>) -> AvError {
        self.lost.get_or_insert_with(|| reason.into());
        AvError::IO
    }

    /// Returns the time to send to the program.
    fn told_time(&mut self, packet: &Packet) -> Result<i64, AvError> {
        let pts = packet.pts();
        if *self.is_untimed.get_or_insert(pts.is_none()) != pts.is_none() {
            return Err(self.lose("some pictures have a time and some have none"));
        }
        // Packets without times are matched by their order.
        let Some(pts) = pts else { return Ok(NO_TIME) };
        let told = pts.checked_add(TIME_ZERO).filter(|told| (0..TIME_MAX).contains(told));
        told.ok_or_else(|| self.lose("a time is too far from zero"))
    }

    /// Sets the time of a decoded picture; returns `None` if it is not shown.
    fn heard(&mut self, mut picture: AvFrame) -> Result<Option<AvFrame>, AvError> {
        if self.is_untimed == Some(true) {
            picture.set_times(None, self.is_full_range);
            return Ok(Some(picture));
        }
        let told = picture.packet_pts().and_then(|time| time.checked_sub(TIME_ZERO));
        let Some(pts) = told else { return Err(self.lose("a picture came without a time")) };
        if self.last.is_some_and(|last| last >= pts) {
            return Err(self.lose("pictures came out of order"));
        }
        self.last = Some(pts);
        picture.set_times(Some(pts), self.is_full_range);
        Ok((!self.discarded.remove(&pts)).then_some(picture))
    }
}

impl FrameDecoder for ProgramDecoder {
    fn send(&mut self, packet: Option<&Packet>) -> Result<(), AvError> {
        let Some(packet) = packet else {
            self.talk.send_end();
            return Ok(());
        };
        if packet.reconfigures() {
            return Err(self.lose("the stream changes its configuration out of band"));
        }
        let time = self.told_time(packet)?;
        if packet.is_discarded() {
            self.discarded.extend(packet.pts());
        }
        let Some(bytes) = self.rewriter.rewrite(packet.data()) else {
            return Err(self.lose("a packet is not made of whole units"));
        };
        if !self.geometry.holds(&bytes) {
            return Err(self.lose("its pictures may change their size or format"));
        }
        let Some(header) = ivf::frame_header(bytes.len(), time) else {
            return Err(self.lose("a picture is too large"));
        };
        self.talk.send([&header[..], &bytes].concat());
        Ok(())
    }

    fn receive(&mut self) -> Result<Option<AvFrame>, AvError> {
        loop {
            let received = self.talk.receive();
            let received = received.map_err(|reason| self.lose(format!("ffmpeg: {reason}")))?;
            let Some(picture) = received else { return Ok(None) };
            if let Some(shown) = self.heard(picture)? {
                return Ok(Some(shown));
            }
        }
    }

    /// Marks the decoder lost: a program decodes one stream from its beginning and cannot start over.
    fn reset(&mut self) {
        self.lose("the program cannot start over");
    }

    /// Damage ends the program instead: the reference then segments the file anew and conceals the damage
    /// itself.
    fn has_reported_damage(&self) -> bool {
        false
    }

    fn too_large(&self) -> Option<DecodeError> {
        None
    }

    fn lost(&self) -> Option<String> {
        self.lost.clone()
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}
