//! An answer of the server, read whole.

use std::fmt;

use reqwest::blocking::Response;
use serde_json::Value;

#[derive(Debug)]
pub struct Reply {
    /// The request, cut short, which tells a failure which of many it was.
    asked: String,
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub bytes: Vec<u8>,
    pub text: String,
}

impl fmt::Display for Reply {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.asked, self.text)
    }
}

impl Reply {
    pub fn read(asked: String, response: Response) -> reqwest::Result<Reply> {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let bytes = response.bytes()?.to_vec();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Ok(Reply { asked, status, headers, bytes, text })
    }

    /// Itself, which must have this status.
    #[track_caller]
    pub fn assert_status(self, status: u16) -> Reply {
        assert_eq!(self.status, status, "{self}");
        self
    }

    /// Itself, which must have succeeded with 200.
    #[track_caller]
    pub fn assert_ok(self) -> Reply {
        self.assert_status(200)
    }

    /// Itself, which must be a refusal with this status and code.
    #[track_caller]
    pub fn assert_refused(self, status: u16, code: &str) -> Reply {
        assert_eq!((self.status, &*self.code()), (status, code), "{self}");
        self
    }

    /// Itself, which must be a refusal with 422 that names this field alone, in whatever `row` says of the request.
    #[track_caller]
    pub fn assert_invalid(self, field: &str, row: impl std::fmt::Display) -> Reply {
        let found = (self.status, self.fields());
        assert_eq!(found, (422, vec![field.to_owned()]), "{row}: {self}");
        self
    }

    /// Its body as JSON; null when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_default()
    }

    #[track_caller]
    pub fn run(&self) -> String {
        self.json()["run_id"].as_str().expect("an id").to_owned()
    }

    /// A header, or nothing.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("ASCII"))
    }

    /// The path that its `Link` header names as the next page.
    pub fn next_page(&self) -> Option<String> {
        let link = self.header("link");
        assert!(link.is_empty() || link.ends_with(">; rel=\"next\""), "{link}");
        Some(link.strip_prefix('<')?.split_once('>')?.0.to_owned())
    }

    /// The code of the error envelope, or nothing.
    pub fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }

    pub fn fields(&self) -> Vec<String> {
        let json = self.json();
        let details = json["error"]["details"].as_array().cloned().unwrap_or_default();
        details
            .iter()
            .map(|detail| detail["field"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    pub fn source_message(&self) -> String {
        let json = self.json();
        let detail = &json["error"]["details"][0];
        assert_eq!(detail["field"], "source_uri", "{}", self.text);
        detail["message"].as_str().unwrap_or_default().to_owned()
    }
}
