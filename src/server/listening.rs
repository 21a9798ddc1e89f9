//! Listening sockets: all are bound at the start, and served once every other part runs.
//!
//! If an address is taken or a certificate invalid, the start fails before anything is written.
//! Certificates are reloaded when their files change.

use std::{io, net::SocketAddr, sync::Arc};

use tokio::task::JoinHandle;
use transport::{
    CertificateError, CertificatePaths, Listener, ReloadingCertificate, ServerLimits,
    ServiceConfig, ShutdownSignals, TransportError,
};

use crate::api::{App, refusal_headers, router};

/// Protocols and certificates of the listeners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServingConfig {
    /// Certificate of HTTP/1.1 and HTTP/2; `None` serves them in clear text.
    pub tls: Option<CertificatePaths>,
    /// HTTP/3 listener; `None` serves no HTTP/3.
    pub h3: Option<Http3Config>,
}

/// Address and certificate of the HTTP/3 listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http3Config {
    pub bind_addr: SocketAddr,
    pub certificate: CertificatePaths,
}

impl ServingConfig {
    /// Opens each distinct certificate: first that of HTTP/1.1 and HTTP/2, then that of HTTP/3 if it differs.
    pub fn certificates(&self) -> Result<Vec<Arc<ReloadingCertificate>>, ListenError> {
        let tls =
            self.tls.iter().map(|files| (files, "SERVICE_TLS_CERT_PATH, SERVICE_TLS_KEY_PATH"));
        let h3 = self.h3.iter().map(|h3| &h3.certificate);
        let h3 = h3.filter(|files| self.tls.as_ref() != Some(files));
        let h3 = h3.map(|files| (files, "SERVICE_H3_TLS_CERT_PATH, SERVICE_H3_TLS_KEY_PATH"));
        let open = |(files, settings): (&CertificatePaths, _)| {
            ReloadingCertificate::open(files.clone())
                .map_err(|source| ListenError::Certificate { settings, source })
        };
        tls.chain(h3).map(open).collect()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error("{setting}: {source}")]
    Transport { setting: &'static str, source: TransportError },
    #[error("{settings}: {source}")]
    Certificate { settings: &'static str, source: CertificateError },
    #[error("cannot read the local listening address: {0}")]
    Address(#[source] io::Error),
}

/// Sockets that are bound but do not accept yet.
pub(super) struct BoundSockets {
    tcp: Listener,
    addr: SocketAddr,
    #[cfg(feature = "h3-experimental")]
    quic: Option<quic::Quic>,
    certificates: Vec<Arc<ReloadingCertificate>>,
}

impl BoundSockets {
    /// Binds `addr` and, as `serving` says, the UDP socket of HTTP/3; reads the certificates.
    pub fn bind(addr: SocketAddr, serving: &ServingConfig) -> Result<BoundSockets, ListenError> {
        let certificates = serving.certificates()?;
        let refused = |source| ListenError::Transport { setting: "SERVICE_BIND_ADDR", source };
        let mut tcp = Listener::bind(addr).map_err(refused)?;
        if let Some(files) = &serving.tls {
            tcp = tcp.with_tls(find(files, &certificates)).map_err(refused)?;
        }
        let addr = tcp.local_addr().map_err(ListenError::Address)?;
        Ok(BoundSockets {
            tcp,
            addr,
            #[cfg(feature = "h3-experimental")]
            quic: quic::Quic::bind(serving, &certificates)?,
            certificates,
        })
    }

    pub fn serve(self, app: &Arc<App>, ends: &ShutdownSignals) -> Vec<JoinHandle<usize>> {
        for certificate in self.certificates {
            let stop = ends.stop.clone();
            tokio::spawn(async move { stop.run_until_cancelled(certificate.watch()).await });
        }
        let (router, limits) = (router(Arc::clone(app)), ServerLimits::default());
        let site = ServiceConfig { router, limits, elsewhere: None, refusal_headers };
        let limiter = Arc::clone(&app.limiter);
        let mut accepting = Vec::new();
        #[cfg(feature = "h3-experimental")]
        let site = match self.quic {
            None => site,
            Some(quic) => {
                let (limiter, ends) = (Arc::clone(&limiter), ends.clone());
                tracing::info!(addr = %quic.addr, "listening for HTTP/3");
                let serving = transport::serve_quic(quic.listener, site.clone(), limiter, ends);
                accepting.push(tokio::spawn(serving));
                ServiceConfig { elsewhere: Some(quic.elsewhere), ..site }
            }
        };
        tracing::info!(addr = %self.addr, "listening");
        let serving = transport::serve(self.tcp, site, limiter, ends.clone());
        accepting.push(tokio::spawn(serving));
        accepting
    }
}

/// Returns the opened certificate of the paths `files`.
fn find<'a>(
    files: &CertificatePaths,
    opened: &'a [Arc<ReloadingCertificate>],
) -> &'a Arc<ReloadingCertificate> {
    opened.iter().find(|known| known.files() == files).expect("every pair was opened")
}

#[cfg(feature = "h3-experimental")]
mod quic {
    use http::HeaderValue;
    use transport::QuicListener;

    use super::*;

    /// Time for which browsers remember that the site offers HTTP/3 (RFC 7838 3.1): a day, in seconds.
    const REMEMBERED: u32 = 86_400;

    /// HTTP/3 socket, and the `Alt-Svc` header that announces it over TCP.
    pub struct Quic {
        pub listener: QuicListener,
        pub addr: SocketAddr,
        pub elsewhere: HeaderValue,
    }

    impl Quic {
        pub fn bind(
            serving: &ServingConfig,
            opened: &[Arc<ReloadingCertificate>],
        ) -> Result<Option<Quic>, ListenError> {
            let Some(h3) = &serving.h3 else { return Ok(None) };
            let certificate = find(&h3.certificate, opened);
            let listener = QuicListener::bind(h3.bind_addr, certificate, ServerLimits::default());
            let refused =
                |source| ListenError::Transport { setting: "SERVICE_H3_BIND_ADDR", source };
            let listener = listener.map_err(refused)?;
            let addr = listener.local_addr().map_err(ListenError::Address)?;
            let told = format!("h3=\":{}\"; ma={REMEMBERED}", addr.port());
            let elsewhere = HeaderValue::from_str(&told).expect("digits and ASCII signs");
            Ok(Some(Quic { listener, addr, elsewhere }))
        }
    }
}
