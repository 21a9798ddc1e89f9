//! Drives all sessions from one thread: waits for their sockets and timers, and ends them in order.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use worker::CancelToken;

use super::{
    PublishArgs, PublishStats,
    clip::ClipFile,
    endpoint::Endpoint,
    no_socket,
    session::{PlaybackOptions, PublisherSession},
};
use crate::{error::CliError, interrupt, output::printable};

/// Longest wait before Ctrl-C is noticed.
const TURN: Duration = Duration::from_millis(100);

/// Result of a publication.
pub struct Published {
    /// Runs of the sessions, if the server names them.
    pub runs: Vec<String>,
    /// Statistics of all sessions.
    pub figures: PublishStats,
}

/// Publishes until everything is sent, time is up or Ctrl-C. Prints each run to stderr as it begins.
pub fn publish(args: &PublishArgs) -> Result<Published, CliError> {
    let endpoint = Endpoint::new(args)?;
    let plan = PlaybackOptions {
        clip: Arc::new(ClipFile::read(&args.file)?),
        repeats: args.repeats,
        loss: args.loss,
        jitter: Duration::from_millis(args.jitter),
    };
    let cancel = interrupt::token()?;
    let (mut sessions, mut runs) = (Vec::new(), Vec::new());
    let outcome = play(args, &endpoint, &plan, &cancel, (&mut sessions, &mut runs));
    // The sessions are ended even after a failure; the first failure is returned.
    let ended = end(&endpoint, &mut sessions);
    outcome.and(ended)?;
    let mut figures = PublishStats::default();
    sessions.iter().for_each(|session| figures.add(&session.figures()));
    // The time of --seconds may be up before the first connects.
    if let Some(first) = sessions.first().filter(|_| figures.connected == 0)
        && !cancel.is_cancelled()
    {
        return Err(first.never_connected());
    }
    Ok(Published { runs, figures })
}

fn play(
    args: &PublishArgs,
    endpoint: &Endpoint,
    plan: &PlaybackOptions,
    cancel: &CancelToken,
    (sessions, runs): (&mut Vec<PublisherSession>, &mut Vec<String>),
) -> Result<(), CliError> {
    let ip = endpoint.local_ip()?;
    let until = args.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    while !cancel.is_cancelled() && until.is_none_or(|until| Instant::now() < until) {
        let missing = sessions.len() < args.count as usize;
        if missing {
            let (session, run) = started(sessions.len() + 1, endpoint, plan, ip)?;
            sessions.push(session);
            if let Some(run) = run {
                note!("run:    {}", printable(&run));
                runs.push(run);
            }
        } else if sessions.iter().all(PublisherSession::is_done) {
            break;
        }
        let now = Instant::now();
        for session in sessions.iter_mut().filter(|session| !session.is_done()) {
            session.drive(now)?;
        }
        if !missing {
            wait(sessions)?;
        }
    }
    Ok(())
}

fn started(
    number: usize,
    endpoint: &Endpoint,
    plan: &PlaybackOptions,
    ip: std::net::IpAddr,
) -> Result<(PublisherSession, Option<String>), CliError> {
    let (mut session, offer) = PublisherSession::offer(number, plan, ip, Instant::now())?;
    let created = endpoint.create(&offer)?;
    let accepted = session.accept(created.answer, created.resource, Instant::now());
    if let Err(error) = accepted {
        // A session that cannot be used is deleted at the server.
        end(endpoint, std::slice::from_mut(&mut session))?;
        return Err(error);
    }
    Ok((session, created.run))
}

/// Waits for a datagram or the next timer of the sessions that are driven on.
fn wait(sessions: &mut [PublisherSession]) -> Result<(), CliError> {
    let now = Instant::now();
    let driven = sessions.iter_mut().filter(|session| !session.is_done());
    let due = driven.map(|session| session.next_at(now)).min();
    let patience = due.map_or(TURN, |due| due.saturating_duration_since(now)).min(TURN);
    let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(patience.subsec_nanos()) };
    let driven = sessions.iter().filter(|session| !session.is_done());
    let mut sockets: Vec<PollFd<'_>> =
        driven.map(|session| PollFd::new(&session.socket, PollFlags::IN)).collect();
    match poll(&mut sockets, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(no_socket(error.into())),
    }
}

/// Deletes the sessions at the server, then closes their connections; in the other order the server would
/// consider them lost.
fn end(endpoint: &Endpoint, sessions: &mut [PublisherSession]) -> Result<(), CliError> {
    let mut outcome = Ok(());
    for session in sessions {
        let deleted = session.resource.take().map_or(Ok(()), |resource| endpoint.delete(&resource));
        outcome = outcome.and(deleted).and(session.close(Instant::now()));
    }
    outcome
}
