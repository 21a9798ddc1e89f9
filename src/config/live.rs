//! Settings of live sessions.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::*;
use crate::record::{
    SESSION_BYTES,
    live::{IceServer, LiveConfig},
};

/// `names_device` is the default of worker sharing if SERVICE_MEDIA_ISOLATION is `auto`. With several
/// principals each may reserve half of the memory budget, so that none takes all of it.
pub(super) fn live(
    vars: &mut EnvReader,
    http: SocketAddr,
    names_device: bool,
    principals: usize,
) -> LiveConfig {
    let port = vars.read("SERVICE_WEBRTC_UDP_PORT", "0", whole(0, 65_535));
    let public_ips = vars.read("SERVICE_WEBRTC_PUBLIC_IPS", "", addresses);
    // Clients that reach the API may publish: a server bound to loopback receives on loopback.
    let ip = if public_ips.is_empty() { http.ip() } else { unspecified(&public_ips) };
    let mut ice_servers = vars.read("SERVICE_WEBRTC_STUN_SERVERS", "", stun_servers);
    ice_servers.extend(turn_server(vars));
    let isolation = [("auto", None), ("principal", Some(false)), ("shared", Some(true))];
    let model = optional(|text| Ok(text.to_owned()));
    let memory_budget =
        vars.read("SERVICE_MEDIA_MEMORY_BUDGET_BYTES", "8589934592", whole(SESSION_BYTES, 1 << 50));
    LiveConfig {
        udp: SocketAddr::new(ip, port),
        public_ips,
        ice_servers,
        memory_budget,
        memory_share: match principals {
            0..=1 => memory_budget,
            _ => (memory_budget / 2).max(SESSION_BYTES),
        },
        shares_workers: vars
            .read("SERVICE_MEDIA_ISOLATION", "auto", one_of(isolation))
            .unwrap_or(names_device),
        model: vars.read("SERVICE_LIVE_MODEL", "", &model),
        second_model: vars.read("SERVICE_LIVE_SECOND_PASS_MODEL", "", &model),
        threshold: vars.read("SERVICE_LIVE_SECOND_PASS_THRESHOLD", "0.7", fraction),
    }
}

/// Returns the address that receives on all interfaces: IPv6 if one of `ips` is, else IPv4.
fn unspecified(ips: &[IpAddr]) -> IpAddr {
    let wants_v6 = ips.iter().any(IpAddr::is_ipv6);
    if wants_v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() }
}

fn addresses(text: &str) -> Result<Vec<IpAddr>, ValueError> {
    let parsed: Result<Vec<IpAddr>, _> = parts(text).map(str::parse).collect();
    let parsed = parsed.map_err(|_| ValueError::from("must list IP addresses, comma separated"))?;
    if parsed.iter().any(IpAddr::is_unspecified) {
        return Err("must list addresses that publishers can send to, not 0.0.0.0 or ::".into());
    }
    Ok(parsed)
}

fn stun_servers(text: &str) -> Result<Vec<IceServer>, ValueError> {
    let server = |url: &str| {
        is_ice_url(url, &["stun:", "stuns:"])
            .then(|| IceServer { url: url.to_owned(), credential: None })
            .ok_or_else(|| "must list URLs such as stun:stun.example:3478".into())
    };
    parts(text).map(server).collect()
}

fn turn_server(vars: &mut EnvReader) -> Option<IceServer> {
    let url = vars.read("SERVICE_WEBRTC_TURN_URL", "", |text| {
        let is_one = text.is_empty() || is_ice_url(text, &["turn:", "turns:"]);
        is_one
            .then(|| text.to_owned())
            .ok_or_else(|| "must be a URL such as turn:turn.example:3478?transport=udp".into())
    });
    let username = vars.read("SERVICE_WEBRTC_TURN_USERNAME", "", |text| Ok(text.to_owned()));
    let credential = vars.secret("SERVICE_WEBRTC_TURN_CREDENTIAL");
    if url.is_empty() {
        return None;
    }
    // User name and credential are sent in a `Link` header.
    let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
    if !is_plain(&username) || !credential.as_deref().is_none_or(is_plain) {
        vars.refuse("SERVICE_WEBRTC_TURN_CREDENTIAL", "and the user name must be visible ASCII");
        return None;
    }
    let (false, Some(credential)) = (username.is_empty(), credential) else {
        vars.refuse(
            "SERVICE_WEBRTC_TURN_URL",
            "needs SERVICE_WEBRTC_TURN_USERNAME and SERVICE_WEBRTC_TURN_CREDENTIAL",
        );
        return None;
    };
    Some(IceServer { url, credential: Some((username, credential)) })
}

/// Returns true if `text` has one of the schemes and can be put into a header unescaped.
fn is_ice_url(text: &str, schemes: &[&str]) -> bool {
    let rest = schemes.iter().find_map(|scheme| text.strip_prefix(scheme));
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'<' | b'>' | b'"' | b',');
    rest.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(is_plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(values: &[(&str, &str)]) -> (LiveConfig, Vec<String>) {
        let values = values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let mut vars = EnvReader::new(values);
        let config = live(&mut vars, SocketAddr::from(([127, 0, 0, 1], 8080)), false, 1);
        (config, vars.errors.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_server_on_loopback_receives_on_loopback() {
        let (config, errors) = read(&[("SERVICE_WEBRTC_UDP_PORT", "9000")]);
        assert_eq!((config.udp.to_string().as_str(), errors.len()), ("127.0.0.1:9000", 0));
        let (config, _) = read(&[("SERVICE_WEBRTC_PUBLIC_IPS", "203.0.113.5")]);
        assert_eq!(config.udp.to_string(), "0.0.0.0:0");
        let (config, _) = read(&[("SERVICE_WEBRTC_PUBLIC_IPS", "203.0.113.5, 2001:db8::5")]);
        assert_eq!(config.udp.to_string(), "[::]:0");
    }

    #[test]
    fn one_principal_of_several_has_half_of_the_memory_in_whole_sessions() {
        for (name, sessions, principals, expected) in [
            ("two have keys", 4, 2, 2),
            ("an odd session is nobody's own", 3, 2, 1),
            ("one at least", 1, 2, 1),
            ("nobody else has a key", 3, 1, 3),
        ] {
            let memory = (sessions * SESSION_BYTES).to_string();
            let memory = [("SERVICE_MEDIA_MEMORY_BUDGET_BYTES".to_owned(), memory)];
            let mut vars = EnvReader::new(memory);
            let http = SocketAddr::from(([127, 0, 0, 1], 8080));
            let share = live(&mut vars, http, false, principals).memory_share;
            assert_eq!(share / SESSION_BYTES, expected, "{name}");
        }
    }

    #[test]
    fn ice_servers_are_checked_and_their_password_is_hidden() {
        let turn = [
            ("SERVICE_WEBRTC_STUN_SERVERS", "stun:a.example, stun:b.example:3478"),
            ("SERVICE_WEBRTC_TURN_URL", "turn:t.example"),
            ("SERVICE_WEBRTC_TURN_USERNAME", "u"),
            ("SERVICE_WEBRTC_TURN_CREDENTIAL", "hidden"),
        ];
        let (config, errors) = read(&turn);
        let urls: Vec<_> = config.ice_servers.iter().map(|server| server.url.as_str()).collect();
        assert_eq!(urls, ["stun:a.example", "stun:b.example:3478", "turn:t.example"]);
        assert!(errors.is_empty() && !format!("{config:?}").contains("hidden"), "{errors:?}");
        let rows = [
            ("SERVICE_WEBRTC_STUN_SERVERS", "a.example", "such as stun:"),
            ("SERVICE_WEBRTC_STUN_SERVERS", "stun:a>b", "such as stun:"),
            ("SERVICE_WEBRTC_TURN_URL", "turn:t.example", "needs SERVICE_WEBRTC_TURN_USERNAME"),
            ("SERVICE_WEBRTC_PUBLIC_IPS", "0.0.0.0", "publishers can send to"),
            ("SERVICE_WEBRTC_PUBLIC_IPS", "here", "must list IP addresses"),
            ("SERVICE_MEDIA_ISOLATION", "none", "auto, principal or shared"),
            ("SERVICE_MEDIA_MEMORY_BUDGET_BYTES", "1000", "must be an integer in"),
        ];
        for (name, value, expected) in rows {
            let (_, errors) = read(&[(name, value)]);
            assert!(
                errors.iter().any(|error| error.contains(expected)),
                "{name}={value}: {errors:?}"
            );
        }
    }
}
