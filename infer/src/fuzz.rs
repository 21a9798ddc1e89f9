//! Invariants of the parsers of backend responses and caller schemas, for arbitrary bytes.

use crate::{
    ApiProtocol, OutputSchema, excerpt,
    finding::{self, Finding},
    model_list,
    provider_api::{retry_info, text},
};

/// Key that no message may repeat.
const KEY: &str = "sk-fuzz";
/// Most characters of a message, including the ellipsis.
const MESSAGE_CHARS_MAX: usize = 201;

/// Most characters of all reported violations.
const VIOLATION_CHARS_MAX: usize = 2000;

/// Parses `bytes` as a completion, a model list and an error body.
///
/// Asserts that messages are bounded and repeat no key; an accepted answer is read as a finding.
pub fn reply(bytes: &[u8]) {
    let schema = finding::default_answer();
    for api in [ApiProtocol::Openai(None), ApiProtocol::Gemini] {
        let value = api.reply(bytes).ok().and_then(|reply| text::json(&reply.text));
        if let Some(value) = value.filter(|value| schema.validate(value).is_ok()) {
            Finding::read(&value);
        }
        let models = model_list::models(api, bytes).unwrap_or_default();
        assert!(models.len() <= bytes.len());
    }
    let told = excerpt::excerpt(bytes, Some(KEY));
    assert!(told.chars().count() <= MESSAGE_CHARS_MAX && !told.contains(KEY), "{told}");
    assert!(!told.contains(char::is_control), "{told:?}");
    retry_info::retry_after(bytes);
}

/// Parses `bytes` as a caller's schema, a zero byte, and an answer to validate.
///
/// Asserts that an accepted schema reports few and short violations, the same on each validation.
pub fn schema(bytes: &[u8]) {
    let Some(at) = bytes.iter().position(|byte| *byte == 0) else { return };
    let (schema, answer) = (&bytes[..at], &bytes[at + 1..]);
    let (Ok(schema), Ok(answer)) = (serde_json::from_slice(schema), serde_json::from_slice(answer))
    else {
        return;
    };
    let Ok(schema) = OutputSchema::compile(schema) else { return };
    let told = || schema.validate(&answer).err().map(|violations| violations.to_string());
    assert_eq!(told(), told());
    assert!(told().unwrap_or_default().chars().count() <= VIOLATION_CHARS_MAX, "{:?}", told());
}

#[cfg(test)]
mod tests {
    use proptest::{prelude::*, sample::Index};

    use super::*;
    use crate::corpus::{breaks, broken, corpus};

    #[test]
    fn the_corpus_has_answers_of_both_apis() {
        for api in [ApiProtocol::Openai(None), ApiProtocol::Gemini] {
            assert!(corpus("reply").iter().any(|bytes| api.reply(bytes).is_ok()), "{api:?}");
        }
    }

    proptest! {
        #[test]
        fn a_broken_corpus_is_digested(
            breaks in breaks(),
            seed in any::<Index>(),
        ) {
            for (name, parse) in [("reply", reply as fn(&[u8])), ("schema", schema)] {
                let corpus = corpus(name);
                parse(&broken(seed.get::<Vec<u8>>(&corpus), &breaks));
            }
        }
    }
}
