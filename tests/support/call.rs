//! A request to a [`Server`], put together field by field.

use std::{io::Write, net::TcpStream};

use reqwest::blocking::{Body, Response};
use serde_json::Value;

use super::{ALICE, Reply, Server};

/// A request being put together.
pub struct Call<'a> {
    server: &'a Server,
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Option<Body>,
    key: Option<&'a str>,
}

impl Server {
    pub fn call(&self, method: &str, path: &str) -> Call<'_> {
        Call {
            server: self,
            method: method.to_owned(),
            path: path.to_owned(),
            headers: Vec::new(),
            body: None,
            key: Some(ALICE),
        }
    }
}

impl<'a> Call<'a> {
    /// Acts as the owner of `key`, or of none.
    pub fn key(mut self, key: Option<&'a str>) -> Call<'a> {
        self.key = key;
        self
    }

    pub fn header(mut self, name: &str, value: &str) -> Call<'a> {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sends these bytes as they are.
    pub fn body(mut self, bytes: impl Into<Body>) -> Call<'a> {
        self.body = Some(bytes.into());
        self
    }

    pub fn json(self, body: &Value) -> Call<'a> {
        self.header("content-type", "application/json").body(body.to_string())
    }

    /// Sends it; panics when no answer comes.
    pub fn send(self) -> Reply {
        self.try_send().expect("an answer")
    }

    /// Sends it on a connection of its own, which is returned before its answer.
    pub fn begin(self) -> TcpStream {
        let body = self.body.as_ref().and_then(Body::as_bytes).unwrap_or_default();
        let key = self.key.map(|key| ("x-api-key".to_owned(), self.server.key(key)));
        let mut fields: Vec<_> = self.headers.into_iter().chain(key).collect();
        if !fields.iter().any(|(name, _)| name == "content-length") {
            fields.push(("content-length".to_owned(), body.len().to_string()));
        }
        let fields: String =
            fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let head = format!("{} {} HTTP/1.1\r\nhost: a\r\n{fields}\r\n", self.method, self.path);
        let mut stream = TcpStream::connect(self.server.addr()).expect("accepted");
        stream.write_all(&[head.as_bytes(), body].concat()).expect("sent");
        stream
    }

    pub fn try_send(self) -> reqwest::Result<Reply> {
        let body = self.body.as_ref().and_then(Body::as_bytes).unwrap_or_default();
        let body = String::from_utf8_lossy(&body[..body.len().min(300)]);
        let (method, path, headers) = (&self.method, &self.path, &self.headers);
        let asked = format!("{method} {path} as {:?} with {headers:?} {body}", self.key);
        Reply::read(asked, self.open()?)
    }

    /// Sends it, and leaves the body to be read as it comes.
    pub fn open(self) -> reqwest::Result<Response> {
        let method = self.method.parse().expect("a method");
        let url = format!("{}{}", self.server.base, self.path);
        let mut request = self.server.client.request(method, url);
        if let Some(key) = self.key {
            request = request.header("x-api-key", self.server.key(key));
        }
        for (name, value) in self.headers {
            request = request.header(name, value);
        }
        if let Some(body) = self.body {
            request = request.body(body);
        }
        request.send()
    }
}
