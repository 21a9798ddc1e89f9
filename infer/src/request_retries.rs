//! Requests to one backend for one question: a value; responses come in, the next step goes out.
//!
//! Each reason to ask again is used once: another form of the schema where one is refused, more room,
//! the violations, a pause, a connection that was gone. What is left after that is a failure with
//! its class.

#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use serde_json::Value;

use crate::{
    Failure, FinishReason, Request, Tokens,
    config::{Api, Secret},
    excerpt::excerpt,
    http::{Lost, Response},
    provider_api::{Ask, Correction, Form, Reply, refuses_form, retry_info, text},
};

/// Tokens of a prompt at most, in times of what is expected of it: eight to a byte of text.
const PROMPT_SCALE: u64 = 24;
/// Tokens of an answer at most, in times of what was asked for: some think beside it.
const ANSWER_SCALE: u64 = 4;
/// Tokens that templates add to either.
const COUNT_SLACK: u64 = 4096;
/// Most room that a retry asks for.
const ROOM_MAX: u32 = 16_384;
/// Room that a retry asks for where neither the request nor the backend said how much there was.
const ROOM_UNKNOWN: u32 = 4096;
/// Longest answer that is held against a schema.
const JSON_BYTES_MAX: usize = 256 * 1024;

/// Next step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Next {
    /// The answer.
    Done { text: String, json: Option<Value>, finish: FinishReason },
    /// Ask again, after the rest that was asked for.
    Again,
    /// Give up.
    Failed(Failure),
}

/// A response, judged.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Judged {
    pub next: Next,
    /// Failure of this one request, also where another follows.
    pub failure: Option<Failure>,
    /// Tokens that it cost.
    pub tokens: Tokens,
}

/// The questions put to one backend for one request.
#[derive(Debug)]
pub(crate) struct Turns {
    api: Api,
    request: Arc<Request>,
    model: String,
    /// The key that no failure may hold.
    key: Option<Secret>,
    /// Index in the API's forms.
    form: usize,
    /// Tokens asked for after the model ran out of them.
    room: Option<u32>,
    compact: bool,
    may_correct: bool,
    correction: Option<Correction>,
    paused: bool,
    resent: bool,
}

impl Turns {
    /// `model` is what the backend calls it.
    pub fn new(api: Api, request: Arc<Request>, model: &str) -> Turns {
        Turns {
            api,
            request,
            model: model.to_owned(),
            key: None,
            form: 0,
            room: None,
            compact: false,
            may_correct: true,
            correction: None,
            paused: false,
            resent: false,
        }
    }

    /// The same with `key`, which no failure repeats.
    #[must_use]
    pub fn hiding(self, key: Option<Secret>) -> Turns {
        Turns { key, ..self }
    }

    /// The same for a request whose answer was corrected once: another backend's is not.
    #[must_use]
    pub fn uncorrected(self) -> Turns {
        Turns { may_correct: false, ..self }
    }

    /// Request as the caller made it.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// Name of the model at the backend.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// The model was told what is wrong with its answer.
    pub fn has_corrected(&self) -> bool {
        self.correction.is_some()
    }

    /// Tokens that what is to be sent now is expected to take.
    pub fn tokens_estimate(&self) -> u64 {
        self.estimate(self.room.or(self.request.max_tokens))
    }

    /// Tokens of the prompt alone.
    pub fn prompt_estimate(&self) -> u64 {
        self.estimate(Some(0))
    }

    fn estimate(&self, max_tokens: Option<u32>) -> u64 {
        let told = self.correction.as_ref();
        let told = told.map_or(0, |told| told.answer.len() + told.problem.len());
        self.request.tokens_estimate_again(max_tokens, told)
    }

    /// The counts that what was sent and what was asked for can have; any other is none, or one wrong
    /// reply would spend a day's budget.
    fn believed(&self, tokens: Tokens) -> Tokens {
        let prompt_max = self.prompt_estimate().saturating_mul(PROMPT_SCALE) + COUNT_SLACK;
        let asked = self.room.or(self.request.max_tokens).map(u64::from);
        let answer_max = asked.map_or(u64::MAX, |asked| asked * ANSWER_SCALE + COUNT_SLACK);
        let within = |count: u64, most: u64| if count <= most { count } else { 0 };
        let prompt = within(tokens.prompt, prompt_max);
        let completion = within(tokens.completion, answer_max);
        let thinking = within(tokens.thinking, answer_max);
        let sum = prompt.saturating_add(completion).saturating_add(thinking);
        let most = prompt_max.saturating_add(answer_max);
        Tokens { prompt, completion, thinking, total: within(tokens.total, most).max(sum) }
    }

    /// The body to send now.
    pub fn body(&self) -> Vec<u8> {
        self.api.body(&Ask {
            request: &self.request,
            model: &self.model,
            max_tokens: self.room.or(self.request.max_tokens),
            form: self.api.forms().get(self.form).copied().unwrap_or(Form::Told),
            compact: self.compact,
            correction: self.correction.as_ref(),
        })
    }

    /// Takes in what came back. A rest up to `pause_max` may be waited for. Words that no correction
    /// made JSON of are the answer where the schema says that they may be.
    pub fn judge(&mut self, came: Result<Response, Lost>, pause_max: Duration) -> Judged {
        let judged = self.judge_response(came, pause_max);
        match (&judged.next, self.words()) {
            (Next::Failed(_), Some(text)) => {
                let next = Next::Done { text, json: None, finish: FinishReason::Stop };
                Judged { next, ..judged }
            }
            _ => judged,
        }
    }

    /// Plain text in place of the JSON that was asked for, where that is an answer too.
    fn words(&self) -> Option<String> {
        let takes_words = self.request.schema.as_ref().is_some_and(|schema| schema.takes_words());
        let told = self.correction.as_ref().filter(|_| takes_words)?;
        text::is_words(&told.answer).then(|| told.answer.clone())
    }

    fn judge_response(&mut self, came: Result<Response, Lost>, pause_max: Duration) -> Judged {
        let response = match came {
            Ok(response) => response,
            Err(Lost { failure, is_stale }) if is_stale && !self.resent => {
                self.resent = true;
                return Judged::again(failure, Tokens::default());
            }
            Err(Lost { failure, .. }) => return Judged::failed(failure, Tokens::default()),
        };
        match response.status {
            200..=299 => match self.api.reply(&response.body) {
                Ok(reply) => self.judge_reply(reply),
                Err(failure) => Judged::failed(failure, Tokens::default()),
            },
            429 => {
                let said = response.retry_after.or_else(|| retry_info::rest(&response.body));
                self.judge_limit(said, pause_max)
            }
            status => {
                let key = self.key.as_ref().map(Secret::reveal);
                let failure = Failure::Http { status, said: excerpt(&response.body, key) };
                let others = self.request.schema.is_some()
                    && self.form + 1 < self.api.forms().len()
                    && refuses_form(status, &response.body);
                if !others {
                    return Judged::failed(failure, Tokens::default());
                }
                self.form += 1;
                Judged::again(failure, Tokens::default())
            }
        }
    }

    fn judge_limit(&mut self, retry_after: Option<Duration>, pause_max: Duration) -> Judged {
        let failure = Failure::RateLimited { retry_after };
        match retry_after {
            Some(after) if !self.paused && after < pause_max => {
                self.paused = true;
                Judged::again(failure, Tokens::default())
            }
            _ => Judged::failed(failure, Tokens::default()),
        }
    }

    fn judge_reply(&mut self, reply: Reply) -> Judged {
        let Reply { text, finish, tokens } = reply;
        let tokens = self.believed(tokens);
        if finish == FinishReason::ContentFilter {
            return Judged::failed(Failure::Filtered, tokens);
        }
        let Some(schema) = self.request.schema.clone() else {
            return self.judge_text(text, finish, tokens);
        };
        let json = text::json(&text);
        let lost = json.is_none() && text::lost_in_white_space(&text);
        if finish == FinishReason::Length || lost {
            return self.judge_truncated(tokens, lost);
        }
        let problem = match &json {
            _ if text.len() > JSON_BYTES_MAX => {
                Some(format!("it is longer than {JSON_BYTES_MAX} bytes"))
            }
            None if text.trim().is_empty() => Some("there are no words in it".to_owned()),
            None => Some("it is not JSON".to_owned()),
            Some(json) => schema.validate(json).err().map(|violations| violations.to_string()),
        };
        match problem {
            None => Judged { next: Next::Done { text, json, finish }, failure: None, tokens },
            Some(problem) => self.judge_violation(text, problem, tokens),
        }
    }

    /// Without a schema, text that ends early is an answer; no text at all is none.
    fn judge_text(&mut self, text: String, finish: FinishReason, tokens: Tokens) -> Judged {
        if finish == FinishReason::Length && text::fades_out(&text) {
            return self.judge_truncated(tokens, false);
        }
        if text.trim().is_empty() {
            return Judged::failed(Failure::Empty, tokens);
        }
        Judged { next: Next::Done { text, json: None, finish }, failure: None, tokens }
    }

    fn judge_truncated(&mut self, tokens: Tokens, lost: bool) -> Judged {
        if self.room.is_some() {
            return Judged::failed(Failure::Truncated, tokens);
        }
        let had = self.request.max_tokens.or_else(|| {
            let counted = tokens.completion.saturating_add(tokens.thinking);
            u32::try_from(counted).ok().filter(|counted| *counted > 0)
        });
        let more = had.map_or(ROOM_UNKNOWN, |had| had.saturating_mul(2).saturating_add(256));
        self.room = Some(more.min(ROOM_MAX).max(self.request.max_tokens.unwrap_or(0)));
        self.compact |= lost;
        Judged::again(Failure::Truncated, tokens)
    }

    fn judge_violation(&mut self, answer: String, problem: String, tokens: Tokens) -> Judged {
        // No answer at all is another class than a wrong one, and as worth another try.
        let is_empty = answer.trim().is_empty();
        let failure =
            if is_empty { Failure::Empty } else { Failure::Schema { problem: problem.clone() } };
        // An answer that is too long to read is too long to send back.
        if !self.may_correct || self.correction.is_some() || answer.len() > JSON_BYTES_MAX {
            return Judged::failed(failure, tokens);
        }
        self.correction = Some(Correction { answer, problem });
        Judged::again(failure, tokens)
    }
}

impl Judged {
    fn failed(failure: Failure, tokens: Tokens) -> Judged {
        Judged { next: Next::Failed(failure.clone()), failure: Some(failure), tokens }
    }

    fn again(failure: Failure, tokens: Tokens) -> Judged {
        Judged { next: Next::Again, failure: Some(failure), tokens }
    }
}
