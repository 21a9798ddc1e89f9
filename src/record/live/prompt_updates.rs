//! Distributes a new prompt to the description workers of a session and waits for their acknowledgements.
//!
//! Promises that after concurrent updates every worker has the same last prompt, and that a worker discards
//! a refused prompt that it had not acknowledged.

use std::time::Duration;

use media::ErrorKind;
use tokio::{
    sync::{Mutex, mpsc, oneshot},
    time::timeout,
};

use super::description_worker::Instruction;

/// Longest wait until every worker has acknowledged a new prompt.
const PATIENCE: Duration = Duration::from_secs(2);
/// Prompt updates that may wait for one worker.
const WAITING: usize = 4;

/// A new instruction, and the channel that acknowledges its first frame.
pub struct PendingPrompt {
    instruction: Instruction,
    applied: oneshot::Sender<u64>,
}

impl PendingPrompt {
    /// Acknowledges the instruction from `frame` on and returns it; `None` if the caller has given
    /// up, so that the instruction must not be applied.
    pub fn accepted(self, frame: u64) -> Option<Instruction> {
        self.applied.send(frame).ok().map(|()| self.instruction)
    }
}

/// Creates the channel of prompt updates for one worker.
pub fn orders() -> (mpsc::Sender<PendingPrompt>, mpsc::Receiver<PendingPrompt>) {
    mpsc::channel(WAITING)
}

/// Reason that a new prompt was not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PromptError {
    /// The session is over.
    #[error("the session has ended")]
    Closed,
    /// A worker did not acknowledge the prompt in time.
    #[error("the prompt update timed out: retry")]
    Unacknowledged,
}

impl PromptError {
    /// Returns the error kind, which decides the answer to the caller.
    pub fn kind(&self) -> ErrorKind {
        match self {
            PromptError::Closed => ErrorKind::Conflict,
            PromptError::Unacknowledged => ErrorKind::Unavailable,
        }
    }
}

/// Channels to all workers of a session; locked while a new prompt goes to each.
pub struct PromptUpdater(Mutex<Vec<mpsc::Sender<PendingPrompt>>>);

impl PromptUpdater {
    /// Creates an updater that sends to `workers`.
    pub fn new(workers: Vec<mpsc::Sender<PendingPrompt>>) -> PromptUpdater {
        PromptUpdater(Mutex::new(workers))
    }

    /// Sends `instruction` to every worker; returns the first frame that all of them apply it to.
    pub async fn give(&self, instruction: Instruction) -> Result<u64, PromptError> {
        let taken_up = timeout(PATIENCE, self.take_up(instruction)).await;
        taken_up.unwrap_or(Err(PromptError::Unacknowledged))
    }

    async fn take_up(&self, instruction: Instruction) -> Result<u64, PromptError> {
        let workers = self.0.lock().await;
        let mut waiting = Vec::with_capacity(workers.len());
        for orders in &*workers {
            let (applied, told) = oneshot::channel();
            let order = PendingPrompt { instruction: instruction.clone(), applied };
            orders.send(order).await.map_err(|_| PromptError::Closed)?;
            waiting.push(told);
        }
        let mut from = 0;
        for told in waiting {
            from = from.max(told.await.map_err(|_| PromptError::Closed)?);
        }
        Ok(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Worker that acknowledges an order with a frame, has ended, or does not respond.
    #[derive(Clone, Copy)]
    enum Worker {
        From(u64),
        Ended,
        Silent,
    }

    fn instruction(prompt: &str) -> Instruction {
        Instruction { prompt: prompt.to_owned(), schema: None }
    }

    #[tokio::test]
    async fn a_prompt_holds_once_every_worker_has_taken_it_up() {
        use Worker::{Ended, From, Silent};
        for (case, workers, expected) in [
            ("one", &[From(7)][..], Ok(7)),
            ("the later of two", &[From(9), From(4)], Ok(9)),
            ("one has ended", &[From(9), Ended], Err(PromptError::Closed)),
            ("one says nothing", &[From(9), Silent], Err(PromptError::Unacknowledged)),
        ] {
            let mut silent = Vec::new();
            let workers = workers.iter().map(|&worker| {
                let (sender, mut taken) = orders();
                match worker {
                    Ended => drop(taken),
                    Silent => silent.push(taken),
                    From(frame) => {
                        tokio::spawn(async move {
                            while let Some(order) = taken.recv().await {
                                order.accepted(frame);
                            }
                        });
                    }
                }
                sender
            });
            let given = PromptUpdater::new(workers.collect());
            assert_eq!(given.give(instruction("count")).await, expected, "{case}");
            for mut taken in silent {
                let late = taken.recv().await.expect("an order").accepted(11);
                assert!(late.is_none(), "{case}: refused, and taken up all the same");
            }
        }
        assert_eq!(PromptError::Unacknowledged.kind(), ErrorKind::Unavailable);
    }

    #[tokio::test]
    async fn prompts_that_nobody_takes_up_are_refused_however_many_they_are() {
        let (sender, _silent) = orders();
        let given = std::sync::Arc::new(PromptUpdater::new(vec![sender]));
        let all: Vec<_> = (0..2 * WAITING)
            .map(|_| {
                let given = std::sync::Arc::clone(&given);
                tokio::spawn(async move { given.give(instruction("count")).await })
            })
            .collect();
        for one in all {
            assert_eq!(one.await.expect("no panic"), Err(PromptError::Unacknowledged));
        }
    }
}
