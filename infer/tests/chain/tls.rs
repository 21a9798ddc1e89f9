//! Tests of TLS: a backend is trusted by the roots given to the chain, and by no others.

use std::sync::Arc;

use infer::{BackendChain, FailureKind};
use rustls::{RootCertStore, ServerConfig, crypto::aws_lc_rs};
use scripted_model::{ScriptedServer, Step};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_rustls::TlsAcceptor;

use crate::support::{configs, known, only_failure, request, server, tls, trusting};

/// Backend behind a TLS front, with the front's URL and the roots that verify its certificate.
struct Secured {
    server: ScriptedServer,
    front: JoinHandle<()>,
    url: String,
    roots: RootCertStore,
}

impl Drop for Secured {
    fn drop(&mut self) {
        self.front.abort();
    }
}

async fn secured(step: Step) -> Secured {
    let server = server(step).await;
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).expect("a root");
    let key = made.signing_key.serialize_der().try_into().expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has the default versions")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .expect("a TLS server");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    let behind = server.base_url().replace("http://", "");
    let front = tokio::spawn(accept(listener, TlsAcceptor::from(Arc::new(config)), behind));
    Secured { server, front, url: format!("https://localhost:{port}"), roots }
}

async fn accept(listener: TcpListener, tls: TlsAcceptor, behind: String) {
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, behind) = (tls.clone(), behind.clone());
        tokio::spawn(async move {
            // A client that rejects the certificate closes the connection, which is what the test checks.
            let mut outer = tls.accept(stream).await.ok()?;
            let mut inner = TcpStream::connect(behind).await.ok()?;
            copy_bidirectional(&mut outer, &mut inner).await.ok()
        });
    }
}

fn chain(url: &str, tls: rustls::ClientConfig) -> BackendChain {
    BackendChain::new(configs(&[("a", "openai_compat", url, "")]), tls, known).expect("a chain")
}

#[tokio::test]
async fn a_backend_answers_where_it_is_trusted_and_is_told_nothing_where_nobody_vouches_for_it() {
    let backend = secured(Step::chat("a car")).await;
    let failure = only_failure(chain(&backend.url, tls()).infer(&request(), &()).await);
    assert_eq!((failure, backend.server.seen().len()), (FailureKind::Refused, 0));
    let answer = chain(&backend.url, trusting(backend.roots.clone())).infer(&request(), &()).await;
    assert_eq!(answer.map(|answer| answer.text), Ok("a car".to_owned()));
}
