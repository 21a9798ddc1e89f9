//! Settings of remote sources and of connections to other hosts.

use transport::egress::NetworkAllowlist;

use super::*;
use crate::runs::source::remote::RemoteConfig;

/// Reads the limits of remote sources; plain HTTP is allowed as in `egress`.
pub(super) fn remote(vars: &mut EnvReader, egress: &EgressConfig) -> RemoteConfig {
    RemoteConfig {
        hls: vars.read("SERVICE_ALLOW_REMOTE_HLS", "false", flag),
        plain_http: egress.insecure_http,
        plain_rtsp: vars.read("SERVICE_ALLOW_UNENCRYPTED_RTSP", "false", flag),
        bytes_max: vars.read("SERVICE_REMOTE_MAX_BYTES", "4294967296", whole(1, 1 << 50)),
    }
}

pub(super) fn egress(vars: &mut EnvReader) -> EgressConfig {
    EgressConfig {
        networks: vars.read("SERVICE_EGRESS_ALLOWED_NETWORKS", "", networks),
        ca_path: vars.read("SERVICE_EGRESS_CA_PATH", "", optional_path),
        insecure_http: vars.read("SERVICE_ALLOW_INSECURE_HTTP", "false", flag),
        insecure_tls: vars.read("SERVICE_ALLOW_INSECURE_TLS", "false", flag),
    }
}

/// Returns warnings for the operator, logged at every start.
pub(super) fn warnings(egress: &EgressConfig) -> Vec<String> {
    let unverified = egress.insecure_tls.then(|| {
        "SERVICE_ALLOW_INSECURE_TLS=true: remote sources are read from hosts that do not prove \
         who they are"
            .to_owned()
    });
    unverified.into_iter().collect()
}

fn networks(text: &str) -> Result<NetworkAllowlist, ValueError> {
    let parse = |net: &str| -> Result<ipnet::IpNet, ValueError> {
        net.parse().map_err(|_| "must list networks such as 10.0.0.0/8 or fd00::/8".into())
    };
    parts(text).map(parse).collect::<Result<_, _>>().map(NetworkAllowlist)
}
