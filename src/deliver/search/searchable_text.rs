//! Text of an event that is searched: its description, or else its summary, or the names of the zones of an episode.

use std::borrow::Cow;

use serde::Deserialize;
use timeline::EventKind;

/// Text and time of a payload.
#[derive(Deserialize)]
pub(super) struct SearchableText<'a> {
    #[serde(borrow, default)]
    description: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    summary: Option<Cow<'a, str>>,
    /// Names of the zones in which something moves.
    #[serde(default)]
    zones: Vec<String>,
    /// Media time, ms.
    #[serde(default)]
    pts_ms: Option<i64>,
    /// Media time of what lasts, ms: a chunk or an episode.
    #[serde(default)]
    start_pts_ms: Option<i64>,
    /// The caller's index.
    #[serde(borrow, default)]
    pub(super) index_name: Option<Cow<'a, str>>,
}

impl<'a> SearchableText<'a> {
    /// The words of a payload; `None` when it has none.
    pub(super) fn of(payload: &'a str) -> Option<SearchableText<'a>> {
        // A payload without these fields, or with others under their names, describes nothing.
        let described: SearchableText<'a> = serde_json::from_str(payload).ok()?;
        (!described.text().is_empty()).then_some(described)
    }

    /// Media time of the event or of its start, ms.
    pub(super) fn at_ms(&self) -> Option<i64> {
        self.pts_ms.or(self.start_pts_ms)
    }

    /// The text that is searched; an empty description is none.
    pub(super) fn text(&self) -> Cow<'_, str> {
        let said = [&self.description, &self.summary].into_iter().flatten();
        let said = said.map(AsRef::as_ref).find(|text: &&str| !text.is_empty());
        said.map_or_else(|| self.zones.join(", ").into(), Cow::Borrowed)
    }
}

/// The text of an event of this kind that is searched, if it has any.
pub fn description(kind: EventKind, payload: &str) -> Option<String> {
    let described = may_describe(kind).then(|| SearchableText::of(payload)).flatten()?;
    Some(described.text().into_owned())
}

/// Returns true if events of this kind may have a description.
pub(super) fn may_describe(kind: EventKind) -> bool {
    match kind {
        EventKind::SemanticChunkInferred
        | EventKind::KeyframeStored
        | EventKind::Vlm
        | EventKind::VlmTiered
        | EventKind::ClipVlm
        | EventKind::ClipVlmTiered
        | EventKind::StateTransition
        | EventKind::LoopDetected
        | EventKind::ActivityStarted
        | EventKind::ActivityEnded => true,
        EventKind::RunCreated
        | EventKind::IngestReceived
        | EventKind::IngestStarted
        | EventKind::FramesDecoded
        | EventKind::MarkerEmitted
        | EventKind::AnalysisGenerated
        | EventKind::SemanticChunkGenerated
        | EventKind::SemanticFallbackActivated
        | EventKind::InferenceCompleted
        | EventKind::TokenBudgetLow
        | EventKind::SourceReconnected
        | EventKind::RunCompleted
        | EventKind::StopRequested
        | EventKind::KeepaliveRefreshed
        | EventKind::RunDeleted
        | EventKind::RunLabelled
        | EventKind::RunFailed
        | EventKind::RunExpired => false,
    }
}
