//! Fields of a run: those that are fixed when it is created, and those that its record shows.

use std::{sync::Arc, time::Duration};

use media::{Label, RequestId, SessionId, WallTime};
use timeline::{Event, RunCreated, SemanticOutcome, SessionRunCreated};

use crate::{base::keys::Principal, runs::lifecycle::RunState};

/// Fields of a run that are fixed when it is created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOrigin {
    pub principal: Principal,
    /// The tenant, metadata only.
    pub tenant: Option<String>,
    pub mode: String,
    pub model: Option<String>,
    /// Live session that created the run.
    pub session: Option<SessionId>,
}

impl RunOrigin {
    /// Reads the origin from a run's first event; `None` for other events.
    pub(super) fn of(event: &Event) -> Option<RunOrigin> {
        match event {
            Event::RunCreated(created) => Some(RunOrigin {
                principal: Principal::named(&created.principal_key),
                tenant: created.tenant_id.clone(),
                mode: created.mode.clone(),
                model: created.model.clone(),
                session: None,
            }),
            Event::SessionRunCreated(created) => Some(RunOrigin {
                principal: Principal::named(&created.principal_key),
                tenant: created.tenant_id.clone(),
                mode: crate::base::model_catalog::Mode::default().as_str().to_owned(),
                model: None,
                session: Some(created.session_id),
            }),
            _ => None,
        }
    }

    pub(super) fn created(&self, request_id: RequestId) -> Event {
        let (principal_key, tenant_id) = (self.principal.as_str().to_owned(), self.tenant.clone());
        match self.session {
            Some(session_id) => {
                Event::SessionRunCreated(SessionRunCreated { principal_key, session_id, tenant_id })
            }
            None => Event::RunCreated(RunCreated {
                request_id,
                mode: self.mode.clone(),
                model: self.model.clone(),
                principal_key,
                tenant_id,
            }),
        }
    }
}

/// State of a run, as its record shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunSnapshot {
    pub lifecycle: RunState,
    pub created_at: WallTime,
    /// Time of the last event.
    pub updated_at: WallTime,
    /// URI of the last ingested source.
    pub source_uri: Option<Arc<str>>,
    /// Model that the run was created for, or else that of the last reasoning.
    pub model: Option<String>,
    pub label: Option<Label>,
    /// Outcome of the last reasoning's model stage.
    pub semantic: Option<Arc<SemanticOutcome>>,
}

impl RunSnapshot {
    /// Time at which the run expires unless an event resets it; `None` once it has ended.
    pub fn expires_at(&self, ttl: Duration) -> Option<WallTime> {
        let ttl_ms = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
        let epoch_ms = self.updated_at.epoch_ms.saturating_add(ttl_ms);
        self.lifecycle.is_active().then_some(WallTime { epoch_ms })
    }
}
