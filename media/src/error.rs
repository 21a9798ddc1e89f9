//! The closed set of error kinds, and the error of parsing a vocabulary value.

/// Kind of failure of an error; the server maps each to one status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum ErrorKind {
    /// The caller sent something that can never work.
    InvalidInput,
    /// No credential, or one that is not known.
    Unauthenticated,
    /// The credential is known and not allowed to do this.
    Forbidden,
    /// No such thing, or none that the caller may see.
    NotFound,
    /// The thing is in a state that does not allow this.
    Conflict,
    /// Valid, but not something this build or machine can do.
    Unsupported,
    /// A named limit is reached; trying later may work.
    Exhausted,
    /// A part the service depends on is not there right now.
    Unavailable,
    /// The caller or a shutdown ended the work.
    Cancelled,
    /// Stored bytes are damaged.
    DataLoss,
    /// Our own bug, or the machine failed.
    Internal,
}

/// A string or number that is not a value of the type asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a valid {what}: {problem}")]
pub struct ParseError {
    /// The type that was asked for, in the words of the wire contract.
    pub what: &'static str,
    /// Problem of the input, without repeating it.
    pub problem: &'static str,
}

impl ParseError {
    /// Always [`ErrorKind::InvalidInput`].
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::InvalidInput
    }
}
