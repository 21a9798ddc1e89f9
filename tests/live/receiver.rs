//! A receiver of live video that has ended, and what the server says until there is another.

use std::{
    net::{SocketAddr, UdpSocket},
    path::Path,
    sync::Arc,
    time::Duration,
};

use reqwest::blocking::{Client, Response};
use sightline::{
    api::{self, App},
    app,
    base::metrics::Metrics,
    config::Config,
};
use tokio::runtime::Runtime;
use transport::{Listener, ServerLimits, ServiceConfig, ShutdownSignals};
use worker::WorkerProgram;

use crate::support::{ALICE, eventually, sandbox, wait_until, whip::OFFER};

const PROGRAM: &str = env!("CARGO_BIN_EXE_sightline-server");

/// A server in this process, whose parts can be reached.
struct Here {
    runtime: Runtime,
    app: Arc<App>,
    addr: SocketAddr,
    client: Client,
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
            let refusal_headers = api::refusal_headers;
            let site = ServiceConfig { router, elsewhere: None, refusal_headers };
            let (limits, limiter) = (ServerLimits::default(), Arc::clone(&app.limiter));
            tokio::spawn(transport::serve(
                listener,
                site,
                limits,
                limiter,
                ShutdownSignals::default(),
            ));
            (app, addr)
        });
        let client = Client::builder().timeout(Duration::from_secs(60)).pool_max_idle_per_host(0);
        Here { runtime, app, addr, client: client.build().expect("a client") }
    }

    fn ready(&self) -> Response {
        let url = format!("http://{}/v1/ready", self.addr);
        self.client.get(url).bearer_auth(ALICE).send().expect("an answer")
    }

    fn publish(&self) -> Response {
        let url = format!("http://{}/v1/stream/whip", self.addr);
        let offer = OFFER.replace("a=mid:0\r\n", "");
        let call = self.client.post(url).bearer_auth(ALICE);
        call.header("content-type", "application/sdp").body(offer).send().expect("an answer")
    }

    /// Ends the receiver, and takes its address.
    fn take_its_place(&self) -> UdpSocket {
        eventually("its address is free", || {
            self.app.live.end_receiver();
            UdpSocket::bind(self.app.live.local_addr()).ok()
        })
    }
}

/// The seconds after which to come again.
fn again(response: &Response) -> u64 {
    let after = response.headers().get("retry-after").expect("when to come again");
    after.to_str().expect("text").parse().expect("seconds")
}

#[test]
fn until_there_is_a_receiver_again_the_server_is_not_ready_and_refuses_offers() {
    let dir = tempfile::tempdir().expect("a directory");
    let here = Here::start(dir.path());
    assert_eq!(here.ready().status(), 200);
    let taken = here.take_its_place();

    let refused = here.publish();
    assert_eq!(refused.status(), 503);
    assert!(again(&refused) > 0);
    let said = refused.text().expect("words");
    assert!(said.contains("WebRTC endpoint"), "{said}");

    let unready = here.ready();
    assert_eq!(unready.status(), 503);
    assert!(again(&unready) > 0);
    let said = unready.text().expect("words");
    assert!(said.contains("live video is not received"), "{said}");

    drop(taken);
    wait_until("it is ready", || here.ready().status() == 200);
    assert_eq!(here.publish().status(), 201);
    here.app.draining.cancel();
    here.runtime.shutdown_timeout(Duration::from_secs(10));
}
