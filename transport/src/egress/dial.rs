//! Connection to a host: resolves its name once, checks every address, and dials only those.

use std::{
    io,
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    sync::Arc,
    time::Duration,
};

use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    net::TcpStream,
    sync::oneshot,
    time::{Instant, timeout, timeout_at},
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::either::Either;

use super::{EgressClient, EgressError, RequestUrl, TimeoutPhase, address::NetworkAllowlist};

/// Timeout of resolving a name.
const DNS: Duration = Duration::from_secs(5);
/// Timeout of connecting to a host, over all of its addresses.
pub const CONNECT: Duration = Duration::from_secs(5);
/// Timeout of a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Most addresses of one host that are tried.
const ADDRESSES_MAX: usize = 8;

/// Connection to an address that was checked, in the clear or encrypted.
pub type CheckedStream = Either<TcpStream, TlsStream<TcpStream>>;

impl EgressClient {
    /// Connects to `target`, with TLS if its scheme requires it.
    pub async fn dial(&self, target: &RequestUrl) -> Result<CheckedStream, EgressError> {
        self.dial_with(target, &self.0.media_tls).await
    }

    pub(super) async fn dial_with(
        &self,
        target: &RequestUrl,
        tls: &Arc<ClientConfig>,
    ) -> Result<CheckedStream, EgressError> {
        let addresses = self.resolve(target).await?;
        let tcp = connect(target, &addresses).await?;
        if !target.is_secure() {
            return Ok(Either::Left(tcp));
        }
        let host = || target.host().to_owned();
        let failed = |reason: String| EgressError::Tls { host: host(), reason };
        let bare = target.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(bare).map_err(|error| failed(error.to_string()))?;
        let handshake = TlsConnector::from(Arc::clone(tls)).connect(name, tcp);
        match timeout(HANDSHAKE, handshake).await {
            Ok(Ok(stream)) => Ok(Either::Right(stream)),
            Ok(Err(error)) => Err(failed(told(&error))),
            Err(_) => Err(EgressError::Timeout { wait: TimeoutPhase::Handshake, after: HANDSHAKE }),
        }
    }

    /// Resolves `target` to its addresses; an error unless all of them may be connected to.
    pub(super) async fn resolve(
        &self,
        target: &RequestUrl,
    ) -> Result<Vec<SocketAddr>, EgressError> {
        let (host, port) = (target.host(), target.port());
        let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        let addresses = match literal {
            Ok(address) => vec![SocketAddr::new(address, port)],
            Err(_) => self.look_up(host, port).await?,
        };
        match blocked(&self.0.networks, &addresses) {
            Some(rule) => Err(EgressError::Blocked { host: host.to_owned(), rule }),
            None => Ok(addresses),
        }
    }

    async fn look_up(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, EgressError> {
        let slow = || EgressError::Timeout { wait: TimeoutPhase::Dns, after: DNS };
        let failed = |reason: String| EgressError::Dns { host: host.to_owned(), reason };
        let end = Instant::now() + DNS;
        // The resolver cannot be interrupted: a lookup holds its permit until it ends, on a thread that no
        // runtime shutdown waits for.
        let places = Arc::clone(&self.0.lookups).acquire_owned();
        let place = timeout_at(end, places).await.map_err(|_| slow())?.expect("never closed");
        let name = host.to_owned();
        let (tell, told) = oneshot::channel();
        let lookup = move || {
            let found: io::Result<Vec<SocketAddr>> =
                (name.as_str(), port).to_socket_addrs().map(Iterator::collect);
            drop(place);
            // The send fails if the caller has given up.
            tell.send(found).ok();
        };
        let thread = std::thread::Builder::new().name("dns".to_owned()).spawn(lookup);
        thread.map_err(|error| failed(error.to_string()))?;
        let found = timeout_at(end, told).await.map_err(|_| slow())?;
        match found.expect("a lookup tells what it found") {
            Ok(addresses) if addresses.is_empty() => Err(failed("no address".to_owned())),
            Ok(addresses) => Ok(addresses),
            Err(error) => Err(failed(error.to_string())),
        }
    }
}

/// Faults of certificates as rustls names them, and their remedies.
const REMEDIES: [(&str, &str); 2] = [
    ("UnknownIssuer", "the operator can name its issuer in SERVICE_EGRESS_CA_PATH"),
    ("CaUsedAsEndEntity", "it is an authority's own: the host needs one with CA:FALSE"),
];

/// Returns the reason of a failed handshake.
fn told(error: &io::Error) -> String {
    let text = error.to_string();
    let known = REMEDIES.iter().find(|(fault, _)| text.contains(fault));
    known.map_or_else(|| text.clone(), |(fault, remedy)| format!("certificate: {fault}; {remedy}"))
}

/// Returns the reason not to connect to a host with these addresses. One blocked address is enough, as a name
/// with such an address is either misconfigured or hostile.
fn blocked(networks: &NetworkAllowlist, addresses: &[SocketAddr]) -> Option<&'static str> {
    addresses.iter().find_map(|address| networks.blocked_reason(address.ip()))
}

/// Tries the addresses in order; each gets an equal share of the time left.
async fn connect(target: &RequestUrl, addresses: &[SocketAddr]) -> Result<TcpStream, EgressError> {
    let end = Instant::now() + CONNECT;
    let tried = &addresses[..addresses.len().min(ADDRESSES_MAX)];
    let mut outcome = EgressError::Timeout { wait: TimeoutPhase::Connect, after: CONNECT };
    for (at, address) in tried.iter().enumerate() {
        let share = (end - Instant::now()) / (tried.len() - at) as u32;
        match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // Small requests are sent without delay; a socket without that option still works.
                stream.set_nodelay(true).ok();
                return Ok(stream);
            }
            Ok(Err(error)) => {
                let (host, reason) = (target.host().to_owned(), error.to_string());
                outcome = EgressError::Connect { host, reason };
            }
            Err(_) => {}
        }
    }
    Err(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_of_certificates_are_said_with_their_remedy() {
        let rows =
            [("Other(CaUsedAsEndEntity)", "CA:FALSE"), ("invalid: Expired", "invalid: Expired")];
        for (fault, expected) in rows {
            let found = told(&io::Error::other(fault));
            assert!(found.ends_with(expected), "{found}");
        }
    }

    #[test]
    fn one_bad_address_among_several_is_enough() {
        let (good, also_good, bad) = ("1.1.1.1:443", "[2606:4700::1111]:443", "10.0.0.1:443");
        let rows: [(&[&str], bool); 6] = [
            (&[good], false),
            (&[good, also_good], false),
            (&[bad], true),
            (&[bad, good, also_good], true),
            (&[good, bad, also_good], true),
            (&[good, also_good, bad], true),
        ];
        for (addresses, is_blocked) in rows {
            let found: Vec<SocketAddr> =
                addresses.iter().map(|text| text.parse().expect("an address")).collect();
            let rule = blocked(&NetworkAllowlist::default(), &found);
            assert_eq!(rule.is_some(), is_blocked, "{addresses:?}: {rule:?}");
        }
    }
}
