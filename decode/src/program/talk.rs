//! The two threads that keep a program's ends moving, so that neither side waits for the other for ever.

use std::{
    collections::VecDeque,
    io::{self, Read, Write},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
};

use super::Conversation;
use crate::{
    Limits,
    demux::check_extent,
    ffi::{RawFrame, RawPictures},
};

/// Coded pictures that may wait for the program.
const CODED_MAX: usize = 32;
/// Raw pictures that may wait for us.
const RAW_MAX: usize = 4;

/// What the program has said when it is asked.
pub(super) enum Said {
    Picture(RawFrame),
    /// Nothing yet.
    Nothing,
    /// It has ended in good order.
    End,
    /// It has ended otherwise.
    Failed(String),
}

pub(super) struct Talk {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    hang_up: Option<Box<dyn FnOnce() + Send>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    coded: VecDeque<Vec<u8>>,
    coded_ended: bool,
    raw: VecDeque<RawFrame>,
    /// What the program's output came to.
    ended: Option<Result<(), String>>,
    /// Nobody asks any more.
    given_up: bool,
}

impl Talk {
    /// Begins with `header`.
    pub(super) fn start(
        conversation: Conversation,
        header: Vec<u8>,
        limits: Limits,
    ) -> io::Result<Talk> {
        let Conversation { input, output, hang_up } = conversation;
        let shared = Arc::new(Shared::default());
        let (threads, hang_up) = (Vec::new(), Some(hang_up));
        let mut talk = Talk { shared: Arc::clone(&shared), threads, hang_up };
        let (to, from) = (Arc::clone(&shared), shared);
        let says = move || tell(&to, input, &header);
        talk.threads.push(thread::Builder::new().name("program-in".to_owned()).spawn(says)?);
        let hears = move || hear(&from, output, limits);
        talk.threads.push(thread::Builder::new().name("program-out".to_owned()).spawn(hears)?);
        Ok(talk)
    }

    /// Hands over a coded picture; pictures that stand in its way go to `ready`.
    pub(super) fn send(&self, coded: Vec<u8>, ready: &mut VecDeque<RawFrame>) {
        let mut state = self.shared.lock();
        while state.coded.len() >= CODED_MAX && state.ended.is_none() {
            match state.raw.pop_front() {
                Some(picture) => {
                    ready.push_back(picture);
                    self.shared.changed.notify_all();
                }
                None => state = self.shared.wait(state),
            }
        }
        state.coded.push_back(coded);
        self.shared.changed.notify_all();
    }

    /// No coded picture follows.
    pub(super) fn send_end(&self) {
        self.shared.lock().coded_ended = true;
        self.shared.changed.notify_all();
    }

    /// What it has said; waits for it once nothing more is to be sent.
    pub(super) fn receive(&self) -> Said {
        let mut state = self.shared.lock();
        loop {
            if let Some(picture) = state.raw.pop_front() {
                self.shared.changed.notify_all();
                return Said::Picture(picture);
            }
            match &state.ended {
                Some(Ok(())) if state.coded_ended => return Said::End,
                Some(Ok(())) => return Said::Failed("it ended before its input did".to_owned()),
                Some(Err(reason)) => return Said::Failed(reason.clone()),
                None if state.coded_ended => state = self.shared.wait(state),
                None => return Said::Nothing,
            }
        }
    }
}

/// Both threads end: the program's input is closed, and its output is read no further.
impl Drop for Talk {
    fn drop(&mut self) {
        {
            let mut state = self.shared.lock();
            state.given_up = true;
            state.coded_ended = true;
            state.coded.clear();
        }
        self.shared.changed.notify_all();
        // A program that nobody reads takes nothing, so that a thread may stand at either end.
        if let Some(hang_up) = self.hang_up.take() {
            hang_up();
        }
        for thread in self.threads.drain(..) {
            // A panic of one has been reported by itself.
            thread.join().ok();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes coded pictures as they come; a program that does not take them says so by ending.
fn tell(shared: &Shared, mut input: Box<dyn Write + Send>, header: &[u8]) {
    let mut written = input.write_all(header);
    while written.is_ok() {
        let mut state = shared.lock();
        let coded = loop {
            match state.coded.pop_front() {
                Some(coded) => break coded,
                None if state.coded_ended => return,
                None => state = shared.wait(state),
            }
        };
        drop(state);
        shared.changed.notify_all();
        written = input.write_all(&coded);
    }
}

fn hear(shared: &Shared, output: Box<dyn Read + Send>, limits: Limits) {
    let ended = hear_pictures(shared, output, limits);
    shared.lock().ended = Some(ended);
    shared.changed.notify_all();
}

fn hear_pictures(
    shared: &Shared,
    output: Box<dyn Read + Send>,
    limits: Limits,
) -> Result<(), String> {
    let mut pictures = RawPictures::open(output).map_err(|error| error.to_string())?;
    while let Some(picture) = pictures.next().map_err(|error| error.to_string())? {
        if let Some(extent) = picture.extent() {
            check_extent(extent, limits).map_err(|error| error.to_string())?;
        }
        let mut state = shared.lock();
        while state.raw.len() >= RAW_MAX && !state.given_up {
            state = shared.wait(state);
        }
        if state.given_up {
            return Ok(());
        }
        state.raw.push_back(picture);
        drop(state);
        shared.changed.notify_all();
    }
    if pictures.ended_whole() { Ok(()) } else { Err("it ended early".to_owned()) }
}
