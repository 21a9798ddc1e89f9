//! Retries of one request to one backend. Pure: responses go in, the next step comes out.
//!
//! Each reason to retry is used once: a refused schema mode (once per mode), too few tokens, schema
//! violations, a retry-after, a stale connection. Any further fault is a failure with its class.

#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use serde_json::Value;

use crate::{
    FailureKind, FinishReason, InferenceRequest, TokenUsage,
    config::{ApiKey, ApiProtocol},
    excerpt::excerpt,
    http::{HttpResponse, NoResponse},
    provider_api::{
        ProviderReply, ProviderRequest, RepairPrompt, SchemaMode, refuses_schema_mode, retry_info,
        text,
    },
    retry_after::ASKED_MAX,
};

/// Largest plausible prompt count, as a multiple of the estimate: eight tokens per byte of text.
const PROMPT_SCALE: u64 = 24;
/// Largest plausible answer count, as a multiple of the limit sent: some models think beyond it.
const ANSWER_SCALE: u64 = 4;
/// Tokens that chat templates may add to either count.
const COUNT_SLACK: u64 = 4096;
/// Largest token limit that a retry sets.
const MAX_TOKENS_RETRY: u32 = 16_384;
/// Token limit of a retry if neither the request nor the backend gave a count.
const MAX_TOKENS_UNKNOWN: u32 = 4096;
/// Longest answer that is validated against a schema, in bytes.
const JSON_BYTES_MAX: usize = 256 * 1024;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    pub text: String,
    pub json: Option<Value>,
    pub finish: FinishReason,
}

/// Next step after a response.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum NextStep {
    Done(Answer),
    /// Send again, after the backend's retry-after if there is one.
    Again,
    /// Give up with this failure.
    Failed(FailureKind),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EvaluatedResponse {
    pub next: NextStep,
    /// Failure of this single request, set even if a retry follows.
    pub failure: Option<FailureKind>,
    /// Tokens that the request cost.
    pub tokens: TokenUsage,
}

/// State of the requests to one backend.
#[derive(Debug)]
pub(crate) struct RequestRetries {
    api: ApiProtocol,
    request: Arc<InferenceRequest>,
    model: String,
    /// Key that no failure may contain.
    pub key: Option<ApiKey>,
    /// Index into the API's schema modes.
    schema_mode: usize,
    /// Token limit set after the model ran out of tokens.
    max_tokens: Option<u32>,
    compact: bool,
    /// False if the request has used its only repair prompt.
    pub may_correct: bool,
    correction: Option<RepairPrompt>,
    waited_out: bool,
    resent: bool,
}

impl RequestRetries {
    /// Creates the state of the first attempt; `model` is the name at the backend.
    pub fn new(api: ApiProtocol, request: Arc<InferenceRequest>, model: &str) -> RequestRetries {
        RequestRetries {
            api,
            request,
            model: model.to_owned(),
            key: None,
            schema_mode: 0,
            max_tokens: None,
            compact: false,
            may_correct: true,
            correction: None,
            waited_out: false,
            resent: false,
        }
    }

    /// Returns the request as the caller made it.
    pub fn request(&self) -> &InferenceRequest {
        &self.request
    }

    pub fn model(&self) -> &str {
        &self.model
    }

    /// Returns true if a repair prompt was sent.
    pub fn has_corrected(&self) -> bool {
        self.correction.is_some()
    }

    /// Returns the estimated tokens of the next attempt.
    pub fn tokens_estimate(&self) -> u64 {
        self.estimate(self.max_tokens.or(self.request.max_tokens))
    }

    pub fn prompt_estimate(&self) -> u64 {
        self.estimate(Some(0))
    }

    fn estimate(&self, max_tokens: Option<u32>) -> u64 {
        let repair = self.correction.as_ref();
        let repair = repair.map_or(0, |repair| repair.answer.len() + repair.problem.len());
        self.request.tokens_estimate_again(max_tokens, repair)
    }

    /// Returns the counts that are plausible for the request and 0 for others, as one wrong reply would use
    /// up a day's budget.
    fn plausible_usage(&self, tokens: TokenUsage) -> TokenUsage {
        let prompt_max = self.prompt_estimate().saturating_mul(PROMPT_SCALE) + COUNT_SLACK;
        let asked = self.max_tokens.or(self.request.max_tokens).map(u64::from);
        let answer_max = asked.map_or(u64::MAX, |asked| asked * ANSWER_SCALE + COUNT_SLACK);
        let within = |count: u64, most: u64| if count <= most { count } else { 0 };
        let prompt = within(tokens.prompt, prompt_max);
        let completion = within(tokens.completion, answer_max);
        let thinking = within(tokens.thinking, answer_max);
        let counted = TokenUsage::of(prompt, completion, thinking, None);
        let most = prompt_max.saturating_add(answer_max);
        TokenUsage { total: within(tokens.total, most).max(counted.total), ..counted }
    }

    pub fn body(&self) -> Vec<u8> {
        let schema_mode = self.api.schema_modes().get(self.schema_mode);
        self.api.body(&ProviderRequest {
            request: &self.request,
            model: &self.model,
            max_tokens: self.max_tokens.or(self.request.max_tokens),
            schema_mode: schema_mode.copied().unwrap_or(SchemaMode::PromptOnly),
            compact: self.compact,
            correction: self.correction.as_ref(),
        })
    }

    /// Evaluates a response. A retry-after below `wait_max` leads to a retry. If the repair prompt brings no
    /// usable answer, plain text is the answer where the schema accepts text.
    pub fn evaluate(
        &mut self,
        received: Result<HttpResponse, NoResponse>,
        wait_max: Duration,
    ) -> EvaluatedResponse {
        let evaluated = self.evaluate_response(received, wait_max);
        match (&evaluated.next, self.plain_text()) {
            (NextStep::Failed(_), Some(text)) => {
                let next = NextStep::Done(Answer { text, json: None, finish: FinishReason::Stop });
                EvaluatedResponse { next, ..evaluated }
            }
            _ => evaluated,
        }
    }

    /// Returns the first answer as plain text, if the schema accepts text and the answer is text.
    fn plain_text(&self) -> Option<String> {
        let takes_words = self.request.schema.as_ref().is_some_and(|schema| schema.accepts_text());
        let repair = self.correction.as_ref().filter(|_| takes_words)?;
        text::is_plain_text(&repair.answer).then(|| repair.answer.clone())
    }

    fn evaluate_response(
        &mut self,
        received: Result<HttpResponse, NoResponse>,
        wait_max: Duration,
    ) -> EvaluatedResponse {
        let none = TokenUsage::default();
        let response = match received {
            Ok(response) => response,
            Err(NoResponse { failure, is_stale }) if is_stale && !self.resent => {
                self.resent = true;
                return EvaluatedResponse::again(failure, none);
            }
            Err(NoResponse { failure, .. }) => return EvaluatedResponse::failed(failure, none),
        };
        match response.status {
            200..=299 => match self.api.reply(&response.body) {
                Ok(reply) => self.evaluate_reply(reply),
                Err(failure) => EvaluatedResponse::failed(failure, none),
            },
            429 => {
                let said = response.retry_after.or_else(|| retry_info::retry_after(&response.body));
                self.evaluate_rate_limit(said, wait_max)
            }
            status => {
                let key = self.key.as_ref().map(ApiKey::reveal);
                let failure = FailureKind::Http { status, message: excerpt(&response.body, key) };
                let others = self.request.schema.is_some()
                    && self.schema_mode + 1 < self.api.schema_modes().len()
                    && refuses_schema_mode(status, &response.body);
                if !others {
                    return EvaluatedResponse::failed(failure, none);
                }
                self.schema_mode += 1;
                EvaluatedResponse::again(failure, none)
            }
        }
    }

    fn evaluate_rate_limit(
        &mut self,
        retry_after: Option<Duration>,
        wait_max: Duration,
    ) -> EvaluatedResponse {
        let retry_after = retry_after.map(|asked| asked.min(ASKED_MAX));
        let failure = FailureKind::RateLimited { retry_after };
        match retry_after {
            Some(after) if !self.waited_out && after < wait_max => {
                self.waited_out = true;
                EvaluatedResponse::again(failure, TokenUsage::default())
            }
            _ => EvaluatedResponse::failed(failure, TokenUsage::default()),
        }
    }

    fn evaluate_reply(&mut self, reply: ProviderReply) -> EvaluatedResponse {
        let ProviderReply { text, finish, tokens } = reply;
        let tokens = self.plausible_usage(tokens);
        if finish == FinishReason::ContentFilter {
            return EvaluatedResponse::failed(FailureKind::Filtered, tokens);
        }
        let Some(schema) = self.request.schema.clone() else {
            return self.evaluate_text(text, finish, tokens);
        };
        let json = text::json(&text);
        let lost = json.is_none() && text::lost_in_white_space(&text);
        if finish == FinishReason::Length || lost {
            return self.evaluate_truncated(tokens, lost);
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
            None => EvaluatedResponse::done(Answer { text, json, finish }, tokens),
            Some(problem) => self.evaluate_violation(text, problem, tokens),
        }
    }

    /// Evaluates an answer without a schema: text that ends early is accepted, blank text is not.
    fn evaluate_text(
        &mut self,
        text: String,
        finish: FinishReason,
        tokens: TokenUsage,
    ) -> EvaluatedResponse {
        if finish == FinishReason::Length && text::fades_out(&text) {
            return self.evaluate_truncated(tokens, false);
        }
        if text.trim().is_empty() {
            return EvaluatedResponse::failed(FailureKind::Empty, tokens);
        }
        EvaluatedResponse::done(Answer { text, json: None, finish }, tokens)
    }

    fn evaluate_truncated(&mut self, tokens: TokenUsage, lost: bool) -> EvaluatedResponse {
        if self.max_tokens.is_some() {
            return EvaluatedResponse::failed(FailureKind::Truncated, tokens);
        }
        let had = self.request.max_tokens.or_else(|| {
            let counted = tokens.completion.saturating_add(tokens.thinking);
            u32::try_from(counted).ok().filter(|counted| *counted > 0)
        });
        let more = had.map_or(MAX_TOKENS_UNKNOWN, |had| had.saturating_mul(2).saturating_add(256));
        let more = more.min(MAX_TOKENS_RETRY);
        // The same request would end in the same way; one for compact JSON is another.
        if !lost && had.is_some_and(|had| had >= more) {
            return EvaluatedResponse::failed(FailureKind::Truncated, tokens);
        }
        self.max_tokens = Some(more.max(self.request.max_tokens.unwrap_or(0)));
        self.compact |= lost;
        EvaluatedResponse::again(FailureKind::Truncated, tokens)
    }

    fn evaluate_violation(
        &mut self,
        answer: String,
        problem: String,
        tokens: TokenUsage,
    ) -> EvaluatedResponse {
        // A blank answer has a class of its own and is as worth a retry as a wrong one.
        let is_empty = answer.trim().is_empty();
        let failure = if is_empty {
            FailureKind::Empty
        } else {
            FailureKind::Schema { problem: problem.clone() }
        };
        // An answer that is too long to validate is too long to send back.
        if !self.may_correct || self.correction.is_some() || answer.len() > JSON_BYTES_MAX {
            return EvaluatedResponse::failed(failure, tokens);
        }
        self.correction = Some(RepairPrompt { answer, problem });
        EvaluatedResponse::again(failure, tokens)
    }
}

impl EvaluatedResponse {
    fn done(answer: Answer, tokens: TokenUsage) -> EvaluatedResponse {
        EvaluatedResponse { next: NextStep::Done(answer), failure: None, tokens }
    }

    fn failed(failure: FailureKind, tokens: TokenUsage) -> EvaluatedResponse {
        let next = NextStep::Failed(failure.clone());
        EvaluatedResponse { next, failure: Some(failure), tokens }
    }

    fn again(failure: FailureKind, tokens: TokenUsage) -> EvaluatedResponse {
        EvaluatedResponse { next: NextStep::Again, failure: Some(failure), tokens }
    }
}
