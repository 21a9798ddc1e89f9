//! TLS provider of the process.
//!
//! Libraries with a rustls client of their own use the installed provider. With two compiled in and
//! none installed, they panic at the first handshake.

/// Makes aws-lc-rs the provider of every TLS client and server of the process.
pub fn install_provider() {
    let installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
    installed.expect("called once, before anything speaks TLS");
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        sync::Arc,
    };

    use rustls::{
        ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection,
        crypto::CryptoProvider,
    };

    /// rustls builders without an explicit provider panic unless exactly one is installed.
    #[test]
    fn a_handshake_works_with_the_one_provider() {
        super::install_provider();
        assert!(CryptoProvider::get_default().is_some());
        let names = vec!["host.example".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).expect("a root");
        let key = made.signing_key.serialize_der().try_into().expect("a key");
        let server = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .expect("a server");
        let client = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let name = "host.example".try_into().expect("a name");
        let mut client = ClientConnection::new(Arc::new(client), name).expect("a client");
        let mut server = ServerConnection::new(Arc::new(server)).expect("a server");
        client.writer().write_all(b"hello").expect("buffered");
        let mut heard = [0; 5];
        for _ in 0..4 {
            let mut wire = Vec::new();
            client.write_tls(&mut wire).expect("in memory");
            server.read_tls(&mut wire.as_slice()).expect("in memory");
            server.process_new_packets().expect("no alert");
            wire.clear();
            server.write_tls(&mut wire).expect("in memory");
            client.read_tls(&mut wire.as_slice()).expect("in memory");
            client.process_new_packets().expect("no alert");
        }
        server.reader().read_exact(&mut heard).expect("decrypted");
        assert_eq!(&heard, b"hello");
    }
}
