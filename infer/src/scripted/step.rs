//! What a scripted backend does with one request.

use std::time::Duration;

use serde_json::{Value, json};

/// What is done with a request.
#[derive(Clone, Debug)]
pub(super) enum Act {
    Reply { status: u16, headers: Vec<(String, String)>, body: Vec<u8> },
    Cut { body: Vec<u8>, after: usize },
    Drip { body: Vec<u8>, every: Duration },
    Raw(Vec<u8>),
    Hang,
}

/// One answer of a script.
#[derive(Clone, Debug)]
pub struct Step {
    pub(super) after: Duration,
    pub(super) act: Act,
}

impl Step {
    fn act(act: Act) -> Step {
        Step { after: Duration::ZERO, act }
    }

    /// `body` with `status`.
    pub fn reply(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Step {
        let headers = vec![("content-type".to_owned(), content_type.to_owned())];
        Step::act(Act::Reply { status, headers, body: body.into() })
    }

    /// `body` as JSON with `status`.
    pub fn json(status: u16, body: &Value) -> Step {
        Step::reply(status, "application/json", body.to_string())
    }

    /// A chat completion that says `text`, of 12 prompt and 5 completion tokens.
    pub fn chat(text: &str) -> Step {
        Step::chat_finished(text, "stop")
    }

    /// The same, ended for `finish_reason`.
    pub fn chat_finished(text: &str, finish_reason: &str) -> Step {
        Step::json(200, &chat_body(text, finish_reason))
    }

    /// `status` with a page of HTML, as a proxy in front of a dead server says it.
    pub fn html(status: u16) -> Step {
        Step::reply(status, "text/html", "<html><body><h1>Bad Gateway</h1></body></html>")
    }

    /// 429, with a `Retry-After` where one is given.
    pub fn rate_limited(retry_after: Option<&str>) -> Step {
        let step = Step::json(429, &json!({"error": {"message": "slow down"}}));
        match retry_after {
            Some(value) => step.with_header("retry-after", value),
            None => step,
        }
    }

    /// The head of a whole reply, `after` bytes of `body`, then the end of the connection.
    pub fn cut(body: impl Into<Vec<u8>>, after: usize) -> Step {
        Step::act(Act::Cut { body: body.into(), after })
    }

    /// `body`, a byte at a time.
    pub fn drip(body: impl Into<Vec<u8>>, every: Duration) -> Step {
        Step::act(Act::Drip { body: body.into(), every })
    }

    /// These bytes and the end of the connection; none of them is HTTP unless the script says so.
    pub fn raw(bytes: impl Into<Vec<u8>>) -> Step {
        Step::act(Act::Raw(bytes.into()))
    }

    /// The end of the connection without a byte.
    pub fn close() -> Step {
        Step::raw(Vec::new())
    }

    /// Nothing, ever.
    pub fn hang() -> Step {
        Step::act(Act::Hang)
    }

    /// The same, later by `after`.
    #[must_use]
    pub fn after(self, after: Duration) -> Step {
        Step { after: self.after + after, ..self }
    }

    /// The same with one more header, where it is a whole reply.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: &str) -> Step {
        if let Act::Reply { headers, .. } = &mut self.act {
            headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }
}

/// The body of a chat completion.
pub fn chat_body(text: &str, finish_reason: &str) -> Value {
    json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": "scripted",
        "choices": [{
            "index": 0,
            "message": {"role": "assistant", "content": text},
            "finish_reason": finish_reason,
        }],
        "usage": {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17},
    })
}
