//! File descriptors: the server takes as many as the system gives, and fits its connections in.

use std::{io, sync::Arc};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use transport::{Crowd, CrowdLimits};

use crate::config::Config;

/// Descriptors that are for no connection: the log, stills, workers, the database.
const RESERVED: u64 = 512;

/// As many connections as are asked for and the system has descriptors for.
pub fn crowd(config: &Config) -> Arc<Crowd> {
    let asked = config.connections_max;
    let total = match raise() {
        Ok(most) => connections(asked, most),
        Err(error) => {
            tracing::warn!(%error, "cannot raise the limit of file descriptors");
            asked
        }
    };
    if total < asked {
        tracing::warn!(asked, total, "fewer connections: raise the limit of file descriptors");
    }
    let per_address = config.connections_per_address.map_or(total, |most| most.get() as usize);
    Crowd::new(CrowdLimits { total, per_address })
}

/// Raises the limit of the process as far as it may; tells how many descriptors that is.
fn raise() -> io::Result<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    }
    Ok(maximum.unwrap_or(u64::MAX))
}

/// How many of `asked` connections `descriptors` have room for: at least one.
fn connections(asked: usize, descriptors: u64) -> usize {
    let room = descriptors.saturating_sub(RESERVED).max(1);
    asked.min(usize::try_from(room).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_for_the_rest() {
        let rows = [(16_384, u64::MAX, 16_384), (16_384, 1024, 512), (100, 1024, 100), (9, 3, 1)];
        for (asked, descriptors, expected) in rows {
            assert_eq!(connections(asked, descriptors), expected, "{asked} of {descriptors}");
        }
    }

    #[test]
    fn the_limit_is_raised_to_what_the_system_gives() {
        let most = raise().expect("allowed");
        assert_eq!(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX), most);
    }
}
