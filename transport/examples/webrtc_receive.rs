//! WebRTC receiver for tests: reads offers from standard input, writes answers, and counts pictures.
//!
//! An offer and an answer end with a line that holds a full stop. The line `close` instead of an offer closes
//! all sessions and is acknowledged by a line. At the end of the input the counts of the endpoint are printed
//! and all sessions closed.
//!
//! ```console
//! $ cargo run --release --package transport --example webrtc_receive -- 0.0.0.0:0 192.0.2.7
//! ```
#![allow(missing_docs)]

use std::{
    error::Error,
    io::{BufRead as _, Write as _},
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use transport::{
    rtp::ReceivedUnit,
    webrtc::{DropReason, EndpointConfig, SessionEvent, SessionHandler, WebRtcEndpoint},
};

/// Handler that only tells of events: the endpoint counts.
struct Tell;

impl SessionHandler for Tell {
    fn on_access_unit(&mut self, _: ReceivedUnit) {}

    fn on_event(&mut self, what: SessionEvent) {
        eprintln!("{what:?}");
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let bind: SocketAddr = arguments.next().unwrap_or("127.0.0.1:0".to_owned()).parse()?;
    let public_ips = arguments.map(|ip| ip.parse()).collect::<Result<Vec<IpAddr>, _>>()?;
    let port = WebRtcEndpoint::open(EndpointConfig {
        bind,
        public_ips,
        sessions_max: 1000,
        connect_within: Duration::from_secs(30),
        lost_after: Duration::from_secs(10),
    })?;
    let mut sessions = Vec::new();
    let mut offer = String::new();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        if line != "." {
            offer.push_str(&line);
            offer.push_str("\r\n");
            continue;
        }
        if offer == "close\r\n" {
            offer.clear();
            sessions.clear();
            while port.counts().sessions() > 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            println!("closed");
            continue;
        }
        let (session, answer) = port.answer(&offer, Box::new(Tell))?;
        offer.clear();
        sessions.push(session);
        let mut out = std::io::stdout().lock();
        write!(out, "{}.\r\n", answer.sdp)?;
        out.flush()?;
    }
    let counts = port.counts();
    for why in DropReason::ALL {
        if counts.refused(why) > 0 {
            println!("refused: {} {}", why.as_str(), counts.refused(why));
        }
    }
    let total = sessions
        .iter()
        .map(|session| session.counts())
        .fold((0, 0, 0), |sum, one| (sum.0 + one.packets, sum.1 + one.units, sum.2 + one.lost));
    println!("{} packets of video, {} units, {} lost", total.0, total.1, total.2);
    Ok(())
}
