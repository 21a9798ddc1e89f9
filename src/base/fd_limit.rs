//! File descriptors: raises the limit of the process and bounds the number of connections by it.

use std::{io, num::NonZeroU32, sync::Arc};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use transport::{ConnectionLimiter, ConnectionLimits};

/// Descriptors reserved for other uses than connections: the log, stills, workers, the database.
const RESERVED: u64 = 512;
/// Minimum number of connections; also the minimum of the setting.
const CONNECTIONS_MIN: u64 = 16;

/// The limit of file descriptors is too low.
#[derive(Debug, thiserror::Error)]
#[error(
    "the system gives {given} file descriptors and {} are needed at least: raise the limit \
     (ulimit -n, LimitNOFILE=)",
    RESERVED + CONNECTIONS_MIN
)]
pub struct TooFewDescriptors {
    /// Hard limit of the process.
    given: u64,
}

/// Returns a limiter for `asked` connections, or fewer if the descriptors do not suffice.
pub fn limiter(
    asked: usize,
    per_address: Option<NonZeroU32>,
) -> Result<Arc<ConnectionLimiter>, TooFewDescriptors> {
    let total = match raise() {
        Ok(most) => connections(asked, most)?,
        Err(error) => {
            tracing::warn!(%error, "cannot raise the limit of file descriptors");
            asked
        }
    };
    if total < asked {
        tracing::warn!(
            asked,
            total,
            "SERVICE_MAX_CONNECTIONS is more than the system has file descriptors for: fewer \
             connections are taken"
        );
    }
    let per_address = per_address.map_or(total, |most| most.get() as usize);
    Ok(ConnectionLimiter::new(ConnectionLimits { total, per_address }))
}

/// Raises the soft limit to the hard limit, which it returns.
fn raise() -> io::Result<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    }
    Ok(maximum.unwrap_or(u64::MAX))
}

/// Returns the number of connections, at most `asked`, that `given` descriptors allow.
fn connections(asked: usize, given: u64) -> Result<usize, TooFewDescriptors> {
    let room = given.saturating_sub(RESERVED);
    if room < CONNECTIONS_MIN {
        return Err(TooFewDescriptors { given });
    }
    Ok(asked.min(usize::try_from(room).unwrap_or(usize::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_for_the_rest() {
        let rows = [
            (16_384, u64::MAX, Some(16_384)),
            (16_384, 1024, Some(512)),
            (100, 1024, Some(100)),
            (100, 528, Some(16)),
            (100, 527, None),
            (16, 3, None),
        ];
        for (asked, given, expected) in rows {
            assert_eq!(connections(asked, given).ok(), expected, "{asked} of {given}");
        }
    }

    #[test]
    fn the_limit_is_raised_to_what_the_system_gives() {
        let most = raise().expect("allowed");
        assert_eq!(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX), most);
    }
}
