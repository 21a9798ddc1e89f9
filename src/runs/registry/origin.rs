//! Origin of a run: fields that are fixed when it is created.

use media::{RequestId, SessionId};
use timeline::{Event, RunCreated, SessionRunCreated};

use crate::base::keys::Principal;

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
