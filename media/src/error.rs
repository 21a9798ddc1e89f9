//! The closed set of error kinds, and the error of parsing a vocabulary value.

/// Category of an error; the server maps each category to one HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum ErrorKind {
    /// The caller sent something that can never work.
    InvalidInput,
    /// No credential was given, or the credential is unknown.
    Unauthenticated,
    /// The credential is known but does not permit this.
    Forbidden,
    /// The thing does not exist, or the caller may not see it.
    NotFound,
    /// The thing is in a state that does not allow the request.
    Conflict,
    /// The request is valid, but this build or machine cannot serve it.
    Unsupported,
    /// A named limit is reached; a later attempt may succeed.
    Exhausted,
    /// A part that the service depends on is unavailable at the moment.
    Unavailable,
    /// The caller or a shutdown ended the work.
    Cancelled,
    /// Stored bytes are damaged.
    DataLoss,
    /// The server has a bug, or the machine failed.
    Internal,
}

/// Error of parsing a string or number into a vocabulary type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a valid {what}: {problem}")]
pub struct ParseError {
    /// Expected type, as the wire contract names it.
    pub what: &'static str,
    /// Fault of the input; does not repeat the input.
    pub problem: &'static str,
}
