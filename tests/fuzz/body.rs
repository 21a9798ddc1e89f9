//! Properties of parsing any JSON body.

use sightline::base::json::{JsonError, parse};

/// A request's body.
///
/// An accepted one means the same when it is written and read again.
pub fn body(bytes: &[u8]) {
    match parse(bytes) {
        Ok(value) => {
            let text = value.to_string();
            assert_eq!(parse(text.as_bytes()).expect("its own text"), value);
        }
        Err(JsonError::Malformed(told)) => assert!(told.len() < 4096, "{told}"),
        Err(JsonError::Invalid(details)) => assert!(!details.is_empty()),
    }
}
