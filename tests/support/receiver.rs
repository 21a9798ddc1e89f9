//! A real HTTPS receiver of webhooks that answers, fails or hangs as it is told.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, Mutex},
};

pub use super::host::Asked as Delivery;
use super::{
    eventually,
    host::{Answer as _, Certificate, Host},
};

/// Behaviour of a path towards a request, after it has read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// Answers with a status and, where given, a further header line.
    Answer(u16, &'static str),
    /// Keeps the connection and never answers.
    Hang,
    Close,
}

impl Delivery {
    /// The number of the event that it tells.
    pub fn seq(&self) -> u64 {
        self.json()["data"]["seq"].as_u64().expect("a number")
    }
}

/// The receiver; it lasts as long as the test's process.
pub struct Receiver {
    host: Host,
    certificate: Certificate,
    behaviours: Arc<Mutex<HashMap<String, Behaviour>>>,
}

impl Receiver {
    pub fn start() -> Receiver {
        let certificate = Certificate::new();
        let behaviours: Arc<Mutex<HashMap<String, Behaviour>>> = Arc::default();
        let told = Arc::clone(&behaviours);
        let host = Host::start(&certificate, move |asked, answer| {
            let behaviour = told.lock().expect("held").get(&asked.path).copied();
            match behaviour.unwrap_or(Behaviour::Answer(200, "x-any: thing")) {
                Behaviour::Answer(status, header) => {
                    let lines = ["content-length: 2", header];
                    let given = lines.len() - usize::from(header.is_empty());
                    answer.head(&format!("{status} X"), &lines[..given])?;
                    answer.write_all(b"ok")
                }
                // The next request is waited for.
                Behaviour::Hang => Ok(()),
                Behaviour::Close => Err(io::ErrorKind::ConnectionAborted.into()),
            }
        });
        Receiver { host, certificate, behaviours }
    }

    pub fn ca(&self) -> String {
        self.certificate.path()
    }

    pub fn url(&self, path: &str) -> String {
        format!("https://127.0.0.1:{}{path}", self.host.port())
    }

    pub fn on(&self, path: &str, behaviour: Behaviour) {
        self.behaviours.lock().expect("held").insert(path.to_owned(), behaviour);
    }

    pub fn deliveries(&self, path: &str) -> Vec<Delivery> {
        let mut deliveries = self.host.asked();
        deliveries.retain(|delivery| delivery.path == path);
        deliveries
    }

    #[track_caller]
    pub fn wait(&self, path: &str, count: usize) -> Vec<Delivery> {
        eventually(&format!("{count} deliveries to {path}"), || {
            Some(self.deliveries(path)).filter(|deliveries| deliveries.len() >= count)
        })
    }
}
