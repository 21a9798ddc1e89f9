//! Client of the RTSP 1.0 protocol (RFC 2326) without I/O: bytes go in, packets and bytes come out. Sends
//! OPTIONS, DESCRIBE, SETUP over the connection itself, PLAY, and keep-alives.
//!
//! Never panics, and buffers at most one message, whatever the server sends.

use std::time::Duration;

use rtsp_types::{Message, Method, ParseError, Response, headers};

use super::{
    auth::Authenticator,
    description,
    error::{RtspError, quoted},
};
use crate::protocol::RtspCredentials;

/// Longest response: a description of many streams is a tenth of it.
const ANSWER_BYTES_MAX: usize = 128 << 10;
/// Header of an interleaved packet: `$`, the channel, the length (RFC 2326 10.12).
const FRAME_BYTES: usize = 4;
/// Most requests of one kind: without and with authorization, and after a stale nonce.
const TRIES_MAX: u32 = 3;
/// Default timeout of a session in seconds (RFC 2326 12.37), and the range accepted from a server.
const SESSION_TIMEOUT_S: u64 = 60;
const SESSION_TIMEOUTS_S: std::ops::RangeInclusive<u64> = 4..=600;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum RtspEvent {
    /// The stream with this SDP text is about to be sent.
    Ready(String),
    /// An RTP or RTCP packet of the stream.
    Packet(Vec<u8>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Options,
    Describe,
    Setup,
    Play,
    KeepAlive,
    TearDown,
}

struct Asked {
    step: Step,
    number: u32,
    tries: u32,
}

#[derive(Default)]
pub(super) struct RtspClient {
    /// URL that was asked for, then those to set up and to play.
    url: String,
    control: String,
    whole: String,
    authenticator: Authenticator,
    /// Received bytes; those before `taken` have been parsed.
    incoming: Vec<u8>,
    taken: usize,
    outgoing: Vec<u8>,
    number: u32,
    asked: Option<Asked>,
    can_get_parameter: bool,
    description: String,
    has_end: bool,
    session: Option<String>,
    timeout: Duration,
    channel: u8,
}

impl RtspClient {
    /// Creates a client for the media at `url`; `once` is a unique text, used as the client nonce.
    pub(super) fn new(url: String, credentials: Option<RtspCredentials>, once: &str) -> RtspClient {
        let mut client = RtspClient {
            control: url.clone(),
            whole: url.clone(),
            url,
            authenticator: Authenticator::new(credentials, once),
            timeout: Duration::from_secs(SESSION_TIMEOUT_S),
            ..RtspClient::default()
        };
        client.ask(Step::Options, 1);
        client
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.incoming.drain(..self.taken);
        self.taken = 0;
        self.incoming.extend_from_slice(bytes);
    }

    pub(super) fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.outgoing)
    }

    /// Returns the next event; `None` if more bytes are needed.
    pub(super) fn poll(&mut self) -> Result<Option<RtspEvent>, RtspError> {
        loop {
            let blank = self.rest().iter().take_while(|byte| b"\r\n".contains(byte)).count();
            self.taken += blank;
            let found = match self.rest().first() {
                None => return Ok(None),
                Some(b'$') => match self.frame() {
                    None => return Ok(None),
                    Some(packet) => packet.map(RtspEvent::Packet),
                },
                Some(_) => match self.message()? {
                    None => return Ok(None),
                    Some(message) => self.take(message)?,
                },
            };
            if found.is_some() {
                return Ok(found);
            }
        }
    }

    /// Returns true if the media is a recording, with an end in its description.
    pub(super) fn has_end(&self) -> bool {
        self.has_end
    }

    /// Returns the longest time between two messages to the server.
    pub(super) fn keep_alive_every(&self) -> Duration {
        self.timeout / 2
    }

    /// Sends a keep-alive.
    ///
    /// While another request is unanswered, the response to this one is ignored: a server that refuses to
    /// play must not be taken for one that did not receive the request.
    pub(super) fn keep_alive(&mut self) {
        let unanswered = self.asked.take();
        self.ask(Step::KeepAlive, 1);
        if unanswered.is_some() {
            self.asked = unanswered;
        }
    }

    /// Ends the session at the server, if there is one.
    pub(super) fn tear_down(&mut self) {
        if self.session.is_some() {
            self.ask(Step::TearDown, 1);
        }
    }

    /// Returns the error for a connection that the server has closed.
    pub(super) fn ended(&self) -> RtspError {
        let during = match self.asked.as_ref().map(|asked| asked.step) {
            Some(Step::Options) => "before it answered anything",
            Some(Step::Describe) => "before it described the media",
            Some(Step::Setup | Step::Play) => "before it sent any media",
            Some(Step::KeepAlive | Step::TearDown) | None => "while it sent the media",
        };
        RtspError::Ended { during }
    }

    fn rest(&self) -> &[u8] {
        &self.incoming[self.taken..]
    }

    /// Takes an interleaved packet once complete; the inner `None` is a packet of another stream.
    fn frame(&mut self) -> Option<Option<Vec<u8>>> {
        let &[_, channel, high, low] = self.rest().first_chunk::<FRAME_BYTES>()?;
        let end = FRAME_BYTES + usize::from(u16::from_be_bytes([high, low]));
        let packet = self.rest().get(FRAME_BYTES..end)?.to_vec();
        self.taken += end;
        // The control packets of a channel use the next higher one.
        let is_ours = channel == self.channel || channel == self.channel.wrapping_add(1);
        Some(is_ours.then_some(packet))
    }

    fn message(&mut self) -> Result<Option<Message<Vec<u8>>>, RtspError> {
        match Message::parse(self.rest()) {
            Ok((message, len)) => {
                self.taken += len;
                Ok(Some(message))
            }
            Err(ParseError::Incomplete(_)) if self.rest().len() <= ANSWER_BYTES_MAX => Ok(None),
            Err(ParseError::Incomplete(_)) => {
                Err(RtspError::TooLarge { limit_bytes: ANSWER_BYTES_MAX })
            }
            Err(ParseError::Error) => Err(RtspError::Malformed { what: "no RTSP message" }),
        }
    }

    fn take(&mut self, message: Message<Vec<u8>>) -> Result<Option<RtspEvent>, RtspError> {
        let response = match message {
            Message::Response(response) => response,
            Message::Request(request) => {
                let header = |name| request.header(name).map_or("", |value| value.as_str());
                if *request.method() == Method::Redirect {
                    return Err(RtspError::Redirected { to: quoted(header(&headers::LOCATION)) });
                }
                // A server's keep-alive request; other requests are answered as not implemented.
                let is_question =
                    matches!(request.method(), Method::Options | Method::GetParameter);
                let status = if is_question { "200 OK" } else { "501 Not Implemented" };
                let number = quoted(header(&headers::CSEQ));
                if self.outgoing.len() < ANSWER_BYTES_MAX {
                    let answer = format!("RTSP/1.0 {status}\r\nCSeq: {number}\r\n\r\n");
                    self.outgoing.extend_from_slice(answer.as_bytes());
                }
                return Ok(None);
            }
            Message::Data(_) => return Ok(None),
        };
        let number = text(&response, &headers::CSEQ).map(|text| text.trim().parse());
        let Some(asked) =
            self.asked.take_if(|asked| number.is_none_or(|it| it == Ok(asked.number)))
        else {
            return Ok(None);
        };
        self.answered(asked, &response)
    }

    fn answered(
        &mut self,
        asked: Asked,
        response: &Response<Vec<u8>>,
    ) -> Result<Option<RtspEvent>, RtspError> {
        let status = u16::from(response.status());
        match status {
            200..=299 => self.proceed(asked.step, response),
            401 if asked.tries >= TRIES_MAX => Err(RtspError::Unauthorized),
            401 => {
                let header = text(response, &headers::WWW_AUTHENTICATE).unwrap_or_default();
                self.authenticator.take(header)?;
                self.ask(asked.step, asked.tries + 1);
                Ok(None)
            }
            300..=399 => {
                let to = text(response, &headers::LOCATION).unwrap_or("another address");
                Err(RtspError::Redirected { to: quoted(to) })
            }
            // Some servers do not know OPTIONS, and some reject keep-alives and TEARDOWN.
            _ => match asked.step {
                Step::Options => {
                    self.ask(Step::Describe, 1);
                    Ok(None)
                }
                Step::KeepAlive | Step::TearDown => Ok(None),
                step => {
                    let reason = quoted(response.reason_phrase());
                    Err(RtspError::Status { method: self.method(step), status, reason })
                }
            },
        }
    }

    fn proceed(
        &mut self,
        step: Step,
        response: &Response<Vec<u8>>,
    ) -> Result<Option<RtspEvent>, RtspError> {
        match step {
            Step::Options => {
                let known = text(response, &headers::PUBLIC).unwrap_or_default();
                self.can_get_parameter = known.contains("GET_PARAMETER");
                self.ask(Step::Describe, 1);
            }
            Step::Describe => {
                let base = [headers::CONTENT_BASE, headers::CONTENT_LOCATION]
                    .iter()
                    .find_map(|name| text(response, name))
                    .map_or(self.url.clone(), quoted_address);
                let found = description::read(response.body())?;
                self.control = joined(&base, found.control.as_deref());
                self.whole = joined(&base, found.whole_control.as_deref());
                self.description = found.text;
                self.has_end = found.has_end;
                self.ask(Step::Setup, 1);
            }
            Step::Setup => {
                let session = text(response, &headers::SESSION)
                    .ok_or(RtspError::Malformed { what: "no session" })?;
                self.begin(session);
                let transport = text(response, &headers::TRANSPORT).unwrap_or_default();
                self.channel = channel(transport)?;
                self.ask(Step::Play, 1);
                return Ok(Some(RtspEvent::Ready(std::mem::take(&mut self.description))));
            }
            Step::Play | Step::KeepAlive | Step::TearDown => {}
        }
        Ok(None)
    }

    /// Parses a session header: `id;timeout=seconds`.
    fn begin(&mut self, header: &str) {
        let mut parts = header.split(';');
        self.session = parts.next().map(|id| quoted(id.trim()));
        let told = parts.find_map(|part| part.trim().strip_prefix("timeout=")?.trim().parse().ok());
        let seconds: u64 = told.unwrap_or(SESSION_TIMEOUT_S);
        let (least, most) = SESSION_TIMEOUTS_S.into_inner();
        self.timeout = Duration::from_secs(seconds.clamp(least, most));
    }

    fn method(&self, step: Step) -> &'static str {
        match step {
            Step::Options => "OPTIONS",
            Step::Describe => "DESCRIBE",
            Step::Setup => "SETUP",
            Step::Play => "PLAY",
            Step::KeepAlive if self.can_get_parameter => "GET_PARAMETER",
            Step::KeepAlive => "OPTIONS",
            Step::TearDown => "TEARDOWN",
        }
    }

    fn ask(&mut self, step: Step, tries: u32) {
        self.number += 1;
        let (method, number) = (self.method(step), self.number);
        let (address, more) = match step {
            Step::Options => (&self.url, ""),
            Step::Describe => (&self.url, "Accept: application/sdp\r\n"),
            Step::Setup => (&self.control, "Transport: RTP/AVP/TCP;unicast;interleaved=0-1\r\n"),
            Step::Play => (&self.whole, "Range: npt=0.000-\r\n"),
            Step::KeepAlive | Step::TearDown => (&self.whole, ""),
        };
        let mut request =
            format!("{method} {address} RTSP/1.0\r\nCSeq: {number}\r\nUser-Agent: sightline\r\n");
        if let Some(value) = self.authenticator.header(method, address) {
            request += &format!("Authorization: {value}\r\n");
        }
        if let Some(session) = &self.session {
            request += &format!("Session: {session}\r\n");
        }
        request += more;
        request += "\r\n";
        self.outgoing.extend_from_slice(request.as_bytes());
        self.asked = Some(Asked { step, number, tries });
    }
}

fn text<'a>(response: &'a Response<Vec<u8>>, name: &headers::HeaderName) -> Option<&'a str> {
    response.header(name).map(|value| value.as_str())
}

/// Makes a server's address safe for a request line.
fn quoted_address(text: &str) -> String {
    text.chars().filter(char::is_ascii_graphic).take(4096).collect()
}

/// Resolves `control` against `base` by appending, as cameras mean it, with or without a final slash.
fn joined(base: &str, control: Option<&str>) -> String {
    let control = control.map(quoted_address).unwrap_or_default();
    match control.as_str() {
        "" | "*" => base.to_owned(),
        whole if whole.contains("://") => whole.to_owned(),
        part if base.ends_with('/') => format!("{base}{part}"),
        part => format!("{base}/{part}"),
    }
}

/// Returns the channel of the RTP packets, which must come over the connection itself.
fn channel(transport: &str) -> Result<u8, RtspError> {
    if transport.to_ascii_uppercase().contains("UDP") {
        return Err(RtspError::Malformed { what: "another transport than the one asked for" });
    }
    let mut parts = transport.split(';');
    let pair = parts.find_map(|part| part.trim().strip_prefix("interleaved="));
    let first = pair.map_or("0", |pair| pair.split('-').next().unwrap_or_default());
    first.trim().parse().map_err(|_| RtspError::Malformed { what: "an interleaved channel" })
}

#[cfg(test)]
mod tests;
