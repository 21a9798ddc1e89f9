//! Searched text of an event: its description, else its summary, else the names of an episode's zones.

use std::borrow::Cow;

use serde::Deserialize;
use timeline::EventKind;

/// Text and time fields of a payload.
#[derive(Deserialize)]
pub(super) struct SearchableText<'a> {
    #[serde(borrow, default)]
    description: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    summary: Option<Cow<'a, str>>,
    /// Names of the zones of an activity episode.
    #[serde(default)]
    zones: Vec<String>,
    /// Media time, in ms.
    #[serde(default)]
    pts_ms: Option<i64>,
    /// Start of a chunk or an episode, in ms of media time.
    #[serde(default)]
    start_pts_ms: Option<i64>,
    #[serde(borrow, default)]
    pub(super) index_name: Option<Cow<'a, str>>,
}

impl<'a> SearchableText<'a> {
    /// Reads the text fields of a payload; `None` without text.
    pub(super) fn of(payload: &'a str) -> Option<SearchableText<'a>> {
        // A payload without these fields, or with other types, has no text.
        let described: SearchableText<'a> = serde_json::from_str(payload).ok()?;
        (!described.text().is_empty()).then_some(described)
    }

    /// Media time of the event or of its start, in ms.
    pub(super) fn at_ms(&self) -> Option<i64> {
        self.pts_ms.or(self.start_pts_ms)
    }

    /// Returns the text to search; an empty description counts as none.
    pub(super) fn text(&self) -> Cow<'_, str> {
        let said = [&self.description, &self.summary].into_iter().flatten();
        let said = said.map(AsRef::as_ref).find(|text: &&str| !text.is_empty());
        said.map_or_else(|| self.zones.join(", ").into(), Cow::Borrowed)
    }
}

/// Returns the searched text of an event of this kind, if any.
pub fn description(kind: EventKind, payload: &str) -> Option<String> {
    let described = may_describe(kind).then(|| SearchableText::of(payload)).flatten()?;
    Some(described.text().into_owned())
}

/// Returns true for kinds with a text of their own: a `state_transition` repeats that of the description
/// before it, and one moment is one hit.
pub(super) fn may_describe(kind: EventKind) -> bool {
    use EventKind::*;
    matches!(
        kind,
        SemanticChunkInferred
            | KeyframeStored
            | Vlm
            | VlmTiered
            | ClipVlm
            | ClipVlmTiered
            | LoopDetected
            | ActivityStarted
            | ActivityEnded
    )
}
