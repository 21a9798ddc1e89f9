//! Maps failures of remote sources to the classes that they are counted under.

use transport::egress::EgressError;

use super::RemoteError;
use crate::base::metrics::RemoteFailure;

impl From<&RemoteError> for RemoteFailure {
    fn from(error: &RemoteError) -> RemoteFailure {
        use EgressError as E;
        match error {
            RemoteError::Playlist => RemoteFailure::Refused,
            RemoteError::Slow(_) | RemoteError::Dripping | RemoteError::Late => {
                RemoteFailure::Timeout
            }
            RemoteError::Pipe(_) | RemoteError::Cancelled => RemoteFailure::Internal,
            RemoteError::Egress(error) => match error {
                E::Malformed(_) | E::Scheme(_) | E::NotEnabled { .. } => RemoteFailure::Refused,
                E::Dns { .. } => RemoteFailure::Dns,
                E::Blocked { .. } => RemoteFailure::Blocked,
                E::Connect { .. } | E::Cut { .. } => RemoteFailure::Tcp,
                E::Tls { .. } => RemoteFailure::Tls,
                E::Status { .. }
                | E::Answer { .. }
                | E::Redirects { .. }
                | E::Changed { .. }
                | E::NoRanges { .. } => RemoteFailure::Http,
                E::Auth { .. } => RemoteFailure::Auth,
                E::Timeout { .. } => RemoteFailure::Timeout,
                E::TooMuch { .. } => RemoteFailure::TooLarge,
            },
        }
    }
}
