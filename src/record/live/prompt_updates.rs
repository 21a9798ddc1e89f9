//! New prompts for the description workers of a session.
//!
//! Promises that after concurrent updates every worker has the same last prompt, and that an update which is refused
//! reaches none.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::description_worker::Instruction;

/// New prompt of one worker, as long as that works.
#[derive(Debug, Default)]
pub struct PromptSlot(Mutex<Slot>);

#[derive(Debug, Default)]
struct Slot {
    /// Instruction for the next job, if it is another.
    pending: Option<Instruction>,
    /// Index of the first frame after the last job that the worker began.
    next_frame: u64,
}

impl PromptSlot {
    /// Begins the job that ends with `last_frame`; returns its instruction, if that is new.
    pub fn begin(&self, last_frame: u64) -> Option<Instruction> {
        let mut slot = self.0.lock();
        slot.next_frame = last_frame + 1;
        slot.pending.take()
    }

    /// Sets the instruction from the next job on; returns the first frame that it may be about.
    fn put(&self, instruction: Instruction) -> u64 {
        let mut slot = self.0.lock();
        slot.pending = Some(instruction);
        slot.next_frame
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the session has ended")]
pub struct PromptError;

/// Prompts of all workers of a session; locked while a new one is set for each.
pub struct PromptUpdater(Mutex<Vec<Weak<PromptSlot>>>);

impl PromptUpdater {
    pub fn new(workers: Vec<Weak<PromptSlot>>) -> PromptUpdater {
        PromptUpdater(Mutex::new(workers))
    }

    /// Sets `instruction` for every worker; returns the first frame that all of them apply it to.
    pub fn give(&self, instruction: &Instruction) -> Result<u64, PromptError> {
        let workers = self.0.lock();
        let slots: Option<Vec<Arc<PromptSlot>>> = workers.iter().map(Weak::upgrade).collect();
        let slots = slots.ok_or(PromptError)?;
        Ok(slots.iter().map(|slot| slot.put(instruction.clone())).max().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_holds_for_every_worker_from_its_next_job_on() {
        let asked = |slot: &PromptSlot, last_frame| slot.begin(last_frame).map(|it| it.prompt);
        let of = |prompt: &str| Instruction { prompt: prompt.to_owned(), schema: None };
        let workers = [(); 2].map(|()| Arc::new(PromptSlot::default()));
        let given = PromptUpdater::new(workers.iter().map(Arc::downgrade).collect());
        assert_eq!(given.give(&of("first")), Ok(0));
        let [one, other] = workers;
        assert_eq!(asked(&one, 8).as_deref(), Some("first"));
        assert_eq!(given.give(&of("second")), Ok(9), "the later of both");
        assert_eq!(asked(&other, 3).as_deref(), Some("second"), "the last one alone");
        assert_eq!((asked(&other, 4), asked(&one, 9).as_deref()), (None, Some("second")));
        drop(other);
        assert_eq!(given.give(&of("third")), Err(PromptError), "one has ended");
        assert_eq!(asked(&one, 10), None, "a refused prompt reaches none");
    }
}
