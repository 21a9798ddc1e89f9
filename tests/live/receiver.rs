//! A receiver of live video that has ended, and what the server says until there is another.

use std::{net::UdpSocket, path::Path, sync::Arc, time::Duration};

use reqwest::blocking::Client;
use sightline::{
    api::{self, App},
    app,
    base::metrics::Metrics,
    config::Config,
};
use tokio::runtime::Runtime;
use transport::{Listener, ServerLimits, ServiceConfig, ShutdownSignals};
use worker::WorkerProgram;

use crate::support::{ALICE, Reply, Server, eventually, sandbox, wait_until, whip::OFFER};

const PROGRAM: &str = env!("CARGO_BIN_EXE_sightline-server");

/// A server in this process, whose parts can be reached.
struct Here {
    runtime: Runtime,
    app: Arc<App>,
    server: Server,
}

impl Here {
    fn start(dir: &Path) -> Here {
        sightline::base::tls::install_provider();
        let values = [
            ("SERVICE_DATA_DIR", dir.display().to_string()),
            ("SERVICE_API_KEYS", format!("alice:{ALICE}")),
            ("SERVICE_BIND_ADDR", "127.0.0.1:0".to_owned()),
            ("SERVICE_SANDBOX", sandbox::policy(PROGRAM).as_str().to_owned()),
        ];
        let config = Config::resolve(values.map(|(name, value)| (name.to_owned(), value)));
        let config = config.expect("settings");
        let runtime = Runtime::new().expect("a runtime");
        let (app, addr) = runtime.block_on(async {
            let program = WorkerProgram::at(PROGRAM);
            let app = app::open(config, program, Arc::new(Metrics::new())).expect("opened");
            let listener = Listener::bind(([127, 0, 0, 1], 0).into()).expect("a free port");
            let addr = listener.local_addr().expect("bound");
            let router = api::router(Arc::clone(&app));
            let (limits, refusal_headers) = (ServerLimits::default(), api::refusal_headers);
            let site = ServiceConfig { router, limits, elsewhere: None, refusal_headers };
            let (limiter, ends) = (Arc::clone(&app.limiter), ShutdownSignals::default());
            tokio::spawn(transport::serve(listener, site, limiter, ends));
            (app, addr)
        });
        Here { runtime, app, server: Server::at(format!("http://{addr}"), Client::builder()) }
    }

    fn ready(&self) -> Reply {
        self.server.get("/v1/ready")
    }

    fn publish(&self) -> Reply {
        let offer = OFFER.replace("a=mid:0\r\n", "");
        let call = self.server.call("POST", "/v1/stream/whip");
        call.header("content-type", "application/sdp").body(offer).send()
    }

    /// Ends the receiver, and takes its address.
    fn take_its_place(&self) -> UdpSocket {
        eventually("its address is free", || {
            self.app.live.port.end();
            UdpSocket::bind(self.app.live.port.local_addr()).ok()
        })
    }
}

/// Checks that `reply` is a refusal for now in these words.
fn check_refused(reply: Reply, words: &str) {
    let reply = reply.assert_status(503);
    let after: u64 = reply.header("retry-after").parse().expect("seconds");
    assert!(after > 0 && reply.text.contains(words), "{after} {}", reply.text);
}

#[test]
fn until_there_is_a_receiver_again_the_server_is_not_ready_and_refuses_offers() {
    let dir = tempfile::tempdir().expect("a directory");
    let here = Here::start(dir.path());
    here.ready().assert_ok();
    let taken = here.take_its_place();
    check_refused(here.publish(), "WebRTC endpoint");
    check_refused(here.ready(), "live video is not received");
    drop(taken);
    let is_ready = || here.ready().status == 200;
    let ends = || here.server.metric("service_live_receiver_ends_total");
    wait_until("it is ready", is_ready);
    let before = ends();
    assert!(before > 0.0);
    here.publish().assert_status(201);
    here.app.live.port.end();
    wait_until("its next end is counted", || ends() > before);
    wait_until("it is ready again", is_ready);
    assert_eq!(ends(), before + 1.0, "each end once");
    here.publish().assert_status(201);
    here.app.draining.cancel();
    here.runtime.shutdown_timeout(Duration::from_secs(10));
}
