//! Checks of the server's network exposure: keys, addresses, WebRTC.

use std::net::IpAddr;

use super::Check;
use crate::api::{App, Settings};

pub fn keys(settings: &Settings) -> Check {
    let (bind, name) = (settings.bind_addr, "keys");
    let advice = "set SERVICE_API_KEYS (name:key; `openssl rand -hex 24` makes a key) and leave \
                  SERVICE_REQUIRE_API_KEY unset";
    match settings.keys {
        Some(_) => Check::ok(name, "every request needs one"),
        None if bind.ip().is_loopback() => {
            Check::advice(name, "are off: every program of this machine may act", advice)
        }
        None => Check::problem(name, format!("are off: whoever reaches {bind} may act"), advice),
    }
}

/// Checks the HTTP address, and that keys are not sent in clear text.
pub fn address(settings: &Settings) -> Check {
    let (bind, name) = (settings.bind_addr, "address");
    let h3 = settings.h3.map_or_else(String::new, |h3| format!(", HTTP/3 at {h3}"));
    if bind.ip().is_loopback() {
        let said = format!("{bind}{h3}: this machine alone reaches it, or a proxy on it");
        return Check::ok(name, said);
    }
    match settings.tls {
        true => Check::ok(name, format!("{bind} with TLS{h3}")),
        false => Check::advice(
            name,
            format!("{bind} without TLS{h3}: keys and footage can be read on the way"),
            "set SERVICE_TLS_CERT_PATH and SERVICE_TLS_KEY_PATH, or let a proxy end TLS and bind to \
             127.0.0.1",
        ),
    }
}

/// Checks the WebRTC address, and that publishers can reach it.
pub fn webrtc(app: &App) -> Check {
    let (live, name) = (&app.settings.live, "webrtc");
    let udp = app.live.port.local_addr();
    if !app.live.port.is_open() {
        let said = format!("udp {udp}: live video is not received, its receiver ended");
        return Check::problem(name, said, "another is being opened; the log says why it ended");
    }
    if udp.ip().is_loopback() {
        return match app.settings.bind_addr.ip().is_loopback() {
            true => Check::ok(name, format!("udp {udp}: publishers on this machine alone")),
            false => Check::problem(
                name,
                format!("udp {udp}: publishers elsewhere cannot send to it"),
                "SERVICE_WEBRTC_PUBLIC_IPS names the address that they reach",
            ),
        };
    }
    if live.udp.port() == 0 {
        return Check::advice(
            name,
            format!("udp {udp}: the port is another at each start, and no firewall knows it"),
            "set SERVICE_WEBRTC_UDP_PORT, and let UDP to it through",
        );
    }
    if live.public_ips.is_empty() {
        return Check::advice(
            name,
            format!("udp {udp}: publishers are told the addresses of the interfaces"),
            "SERVICE_WEBRTC_PUBLIC_IPS names the address that they reach, where that is another: \
             behind NAT, in a container",
        );
    }
    let is_local = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => ip.is_loopback() || ip.is_private() || ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
    };
    let reach = if live.public_ips.iter().all(is_local) { " of a private network" } else { "" };
    let told: Vec<String> = live.public_ips.iter().map(IpAddr::to_string).collect();
    Check::ok(name, format!("udp {udp}: publishers are told {}{reach}", told.join(", ")))
}
