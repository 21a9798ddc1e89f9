//! TLS provider of the process.
//!
//! Libraries with a rustls client of their own use the installed provider. With two compiled in and
//! none installed, they panic at the first handshake.

/// Makes aws-lc-rs the provider of every TLS client and server of the process.
pub fn install_provider() {
    let installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
    installed.expect("called once, before anything speaks TLS");
}
