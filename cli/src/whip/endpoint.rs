//! HTTP side of WHIP (RFC 9725): posts an offer, deletes the session that it created.
//!
//! Follows redirects within the same server only, so the key is sent to no other.

use std::{
    io::Read,
    net::{IpAddr, SocketAddr, UdpSocket},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use reqwest::{
    StatusCode, Url,
    blocking::{Client as Http, RequestBuilder, Response},
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, LOCATION},
};

use super::{PublishArgs, no_socket};
use crate::{
    client::{self, header},
    error::{CliError, Exit},
    output::printable,
    trust,
};

/// Time limit of a request.
const PATIENCE: Duration = Duration::from_secs(30);
/// Most redirects that are followed.
const HOPS_MAX: usize = 3;
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Response header with the session's run.
const RUN: &str = "x-service-run-id";

/// A WHIP endpoint, and the caller's headers.
pub struct Endpoint {
    http: Http,
    url: Url,
    headers: HeaderMap,
}

/// Response to an offer.
pub struct WhipResource {
    pub answer: String,
    pub resource: Url,
    /// Run of the session, if the server names one.
    pub run: Option<String>,
}

impl Endpoint {
    /// Checks the address and the header values; connects later.
    pub fn new(args: &PublishArgs) -> Result<Endpoint, CliError> {
        let usage =
            |problem: String| CliError::Usage(format!("{problem}: {}", printable(&args.url)));
        let url = Url::parse(&args.url)
            .map_err(|error| usage(format!("the WHIP endpoint is no URL ({error})")))?;
        if !trust::is_served(&url) {
            let problem = "the WHIP endpoint must begin with http:// or https://";
            return Err(usage(problem.to_owned()));
        }
        let mut headers = HeaderMap::new();
        if let Some(key) = &args.api_key {
            let mut value = header("API key", &format!("Bearer {key}"))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        if let Some(tenant) = &args.tenant {
            headers.insert("x-tenant-id", header("tenant", tenant)?);
        }
        if let Some(attach) = &args.attach {
            let encoded = URL_SAFE_NO_PAD.encode(attach);
            headers.insert("x-attach-config", header("configuration", &encoded)?);
        }
        let http = args.trust.client(&url, |builder| {
            builder.timeout(PATIENCE).redirect(reqwest::redirect::Policy::none()).no_proxy()
        })?;
        Ok(Endpoint { http, url, headers })
    }

    /// Returns the address of this machine from which the server is reached.
    pub fn local_ip(&self) -> Result<IpAddr, CliError> {
        let server = self.url.socket_addrs(|| None).ok().and_then(|found| found.first().copied());
        let server = server.ok_or_else(|| self.unreachable("no such host".to_owned()))?;
        let any: SocketAddr = match server {
            SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
            SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
        };
        // Connecting a UDP socket looks up the route and sends nothing.
        let routed = UdpSocket::bind(any).and_then(|socket| {
            socket.connect(server)?;
            socket.local_addr()
        });
        routed.map(|local| local.ip()).map_err(no_socket)
    }

    pub fn create(&self, offer: &str) -> Result<WhipResource, CliError> {
        let mut url = self.url.clone();
        for _ in 0..=HOPS_MAX {
            let request = self.http.post(url.clone()).header(CONTENT_TYPE, "application/sdp");
            let reply = self.send(request.body(offer.to_owned()))?;
            if !matches!(reply.status().as_u16(), 307 | 308) {
                return self.created(&url, reply);
            }
            url = self.location(&url, &reply)?;
        }
        Err(self.odd("too many redirects".to_owned()))
    }

    /// Deletes a session; a session that no longer exists is no error.
    pub fn delete(&self, resource: &Url) -> Result<(), CliError> {
        let reply = self.send(self.http.delete(resource.clone()))?;
        if reply.status().is_success() || reply.status() == StatusCode::NOT_FOUND {
            return Ok(());
        }
        Err(self.refused(reply))
    }

    fn send(&self, request: RequestBuilder) -> Result<Response, CliError> {
        let sent = request.headers(self.headers.clone()).send();
        sent.map_err(|error| self.unreachable(client::root_cause(&error)))
    }

    fn created(&self, url: &Url, reply: Response) -> Result<WhipResource, CliError> {
        if !reply.status().is_success() {
            return Err(self.refused(reply));
        }
        if reply.status() != StatusCode::CREATED {
            return Err(self.odd(format!("{} instead of 201", reply.status())));
        }
        let resource = self.location(url, &reply)?;
        let run = reply.headers().get(RUN).and_then(|value| value.to_str().ok());
        let run = run.map(str::to_owned);
        let mut answer = Vec::new();
        reply
            .take(ANSWER_BYTES_MAX as u64 + 1)
            .read_to_end(&mut answer)
            .map_err(|error| self.unreachable(client::read_cause(&error)))?;
        if answer.len() > ANSWER_BYTES_MAX {
            return Err(self.odd(format!("an answer of more than {ANSWER_BYTES_MAX} bytes")));
        }
        let answer = String::from_utf8_lossy(&answer).into_owned();
        Ok(WhipResource { answer, resource, run })
    }

    fn location(&self, base: &Url, reply: &Response) -> Result<Url, CliError> {
        let location = reply.headers().get(LOCATION).and_then(|value| value.to_str().ok());
        let location = location.ok_or_else(|| self.odd("no Location header".to_owned()))?;
        let url = base
            .join(location)
            .map_err(|error| self.odd(format!("a Location that is no URL: {error}")))?;
        if url.origin() == base.origin() {
            return Ok(url);
        }
        Err(self.odd(format!("a Location on another server: {}", printable(url.as_str()))))
    }

    fn refused(&self, reply: Response) -> CliError {
        match client::refusal(reply) {
            Ok(error) => CliError::Api(error),
            Err(error) => self.unreachable(client::read_cause(&error)),
        }
    }

    fn unreachable(&self, reason: String) -> CliError {
        let server = trust::shown(&self.url);
        let said =
            format!("no answer from {server}: {reason}; is it the address of a WHIP endpoint?");
        CliError::Exit(Exit::Unreachable, said)
    }

    fn odd(&self, reason: String) -> CliError {
        CliError::Reply { server: trust::shown(&self.url), reason }
    }
}
