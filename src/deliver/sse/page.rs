//! Page of a stream: its next events, read from the log and written as Server-Sent Events.

use std::fmt::Write;

use bytes::Bytes;
use media::{Label, Seq};
use timeline::{Event, EventKind, EventMeta, StreamedEvent, Timeline, TimelineError};
use tokio_util::sync::CancellationToken;

use super::{StreamScope, Whose};
use crate::runs::{
    lifecycle::RunState,
    registry::{RunRegistry, next_piece},
};

/// Bytes from which a page is complete.
const PAGE_BYTES: usize = 16 << 10;
/// Bytes from which an event is too large for a page: each stream reads it in pieces.
const LARGE_BYTES: u64 = 64 << 10;
/// Events of a run read in one step.
const RUN_STEP: usize = 256;
/// Event numbers covered by one step of an owner's stream.
const ALL_STEP: u64 = 4096;
/// Maximum steps of a page, so that a closed stream is noticed and other streams get the thread.
const STEPS_MAX: usize = 16;
/// Payload bytes read from which a page ends, for the same reason.
const READ_BYTES_MAX: u64 = 1 << 20;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Filter {
    /// Kind of the events; `None` passes all.
    pub kind: Option<EventKind>,
    /// `index_name` of the payloads; `None` passes all.
    pub index: Option<String>,
}

/// Key of a shared page: everything that its contents depend on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PageKey {
    whose: Whose,
    from: Seq,
    /// Head of the log at the request: an earlier page may lack newer events.
    head: Seq,
    filter: Filter,
}

impl PageKey {
    pub(super) fn new(
        scope: &StreamScope,
        timeline: &Timeline,
        from: Seq,
        filter: &Filter,
    ) -> PageKey {
        PageKey { whose: scope.whose(), from, head: timeline.head(), filter: filter.clone() }
    }
}

#[derive(Debug, Default)]
pub(super) struct SsePage {
    /// Complete events as text; empty if there are none.
    pub(super) text: Bytes,
    /// Next event, if it is too large for a page.
    pub(super) large: Option<Seq>,
    /// Event number to read on from.
    pub(super) next: Seq,
    /// True if more of the log can be read at once.
    pub(super) is_cut: bool,
}

/// Reads the page of `key` from the disk; ends early when `stop` is cancelled.
pub(super) fn read(
    registry: &RunRegistry,
    scope: &StreamScope,
    key: &PageKey,
    stop: &CancellationToken,
) -> Result<SsePage, TimelineError> {
    let timeline = registry.timeline();
    let mut text = String::new();
    let (mut next, mut read) = (key.from, 0);
    let cut = |text: String, large, next| SsePage { text: text.into(), large, next, is_cut: true };
    for _ in 0..STEPS_MAX {
        let (heads, after) = ahead(timeline, scope, next);
        for head in heads {
            if read >= READ_BYTES_MAX || stop.is_cancelled() {
                return Ok(cut(text, None, head.seq));
            }
            let wanted = key.filter.kind.is_none_or(|kind| kind == head.kind);
            if !wanted || !is_told(registry, scope, &head) {
                continue;
            }
            let Some(parts) = timeline.get_parts(head.seq)? else { continue };
            read += parts.payload_bytes();
            if !has_index(&parts, &key.filter) {
                continue;
            }
            if parts.payload_bytes() > LARGE_BYTES {
                let large = text.is_empty().then_some(head.seq);
                return Ok(cut(text, large, head.seq));
            }
            open(&mut text, scope, &head);
            let mut payload = parts.into_payload();
            while let Some(piece) = next_piece(&mut payload) {
                text.push_str(&one_line(piece?));
            }
            text.push_str(CLOSE);
            if text.len() >= PAGE_BYTES {
                return Ok(cut(text, None, Seq(head.seq.0 + 1)));
            }
        }
        match after {
            Some(after) => next = after,
            None => return Ok(SsePage { text: text.into(), large: None, next, is_cut: false }),
        }
    }
    Ok(cut(text, None, next))
}

/// Returns the events from `next` on, and the number to read on from; `None` at the end.
fn ahead(timeline: &Timeline, scope: &StreamScope, next: Seq) -> (Vec<EventMeta>, Option<Seq>) {
    match scope {
        StreamScope::Run(run) => {
            let heads = timeline.heads_of(run.id(), next, RUN_STEP);
            let after = heads.last().map(|last| Seq(last.seq.0 + 1));
            (heads, after)
        }
        StreamScope::Owner(_) => {
            let head = timeline.head().0;
            if next.0 > head {
                return (Vec::new(), None);
            }
            let count = ALL_STEP.min(head - next.0 + 1);
            (timeline.heads(next, count as usize), Some(Seq(next.0 + count)))
        }
    }
}

/// Returns true if the stream may show `head`; of a deleted run it shows only the deletion.
fn is_told(registry: &RunRegistry, scope: &StreamScope, head: &EventMeta) -> bool {
    let run = match scope {
        StreamScope::Run(run) => Some(run.clone()),
        StreamScope::Owner(owner) => {
            registry.run(head.run).filter(|run| run.origin().principal == *owner)
        }
    };
    run.is_some_and(|run| {
        head.kind == EventKind::RunDeleted || run.lifecycle() != RunState::Deleted
    })
}

fn has_index(parts: &StreamedEvent, filter: &Filter) -> bool {
    filter.index.is_none() || index_of(parts).as_ref().map(Label::as_str) == filter.index.as_deref()
}

pub fn index_of(event: &StreamedEvent) -> Option<Label> {
    use EventKind::{RunCompleted, SemanticChunkGenerated, SemanticChunkInferred};
    // Other kinds have none, and some of them are long to read.
    if !matches!(event.head.kind, SemanticChunkInferred | SemanticChunkGenerated | RunCompleted) {
        return None;
    }
    match event.decode() {
        Ok(Event::SemanticChunkInferred(chunk)) => chunk.index_name,
        Ok(Event::SemanticChunkGenerated(chunk)) => chunk.index_name,
        Ok(Event::RunCompleted(completed)) => completed.index_name,
        Ok(_) => None,
        Err(error) => {
            tracing::error!(%error, seq = %event.head.seq, "cannot read an event's fields");
            None
        }
    }
}

/// Text after an event's payload.
pub(super) const CLOSE: &str = "}\n\n";

/// Writes an event up to its payload. Nothing has to be escaped: all parts are digits and fixed names.
pub(super) fn open(text: &mut String, scope: &StreamScope, head: &EventMeta) {
    let (seq, at, kind) = (head.seq, head.at.epoch_ms, head.kind.as_str());
    let start = format_args!("id: {seq}\nevent: {kind}\ndata: {{\"seq\":{seq},\"pts_ms\":{at}");
    let run = match scope {
        StreamScope::Run(_) => String::new(),
        StreamScope::Owner(_) => format!(",\"run_id\":\"{}\"", head.run),
    };
    write!(text, "{start},\"kind\":\"{kind}\"{run},\"payload\":").expect("a string takes text");
}

/// Replaces line breaks by spaces: in JSON they occur only as white space between tokens.
pub(super) fn one_line(json: String) -> String {
    if json.contains(['\n', '\r']) { json.replace(['\n', '\r'], " ") } else { json }
}
