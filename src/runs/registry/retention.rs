//! Changes for retention: deletes runs that ended long ago, and forgets purged ones.

use std::{collections::HashSet, sync::Arc};

use media::{RunId, WallTime};
use tokio_util::sync::CancellationToken;

use super::{Run, RunRegistry, change::RunTransition};
use crate::runs::lifecycle::RunState;

impl RunRegistry {
    /// Deletes the runs that ended, and had their last event, before `before`, except `kept`;
    /// returns their number.
    pub async fn delete_ended_before(
        self: &Arc<Self>,
        before: WallTime,
        kept: &HashSet<RunId>,
        stop: &CancellationToken,
    ) -> u64 {
        let ended: Vec<Arc<Run>> = {
            let tables = self.tables.lock();
            let ended = tables.runs.values().filter(|run| run.ended_before(before));
            ended.filter(|run| !kept.contains(&run.id())).cloned().collect()
        };
        let mut deleted = 0;
        for run in ended.iter().take_while(|_| !stop.is_cancelled()) {
            match self.change(run, RunTransition::Reclaim(before)).await {
                Ok(appended) => deleted += appended.len() as u64,
                Err(error) => tracing::warn!(run = %run.id(), %error, "cannot delete an old run"),
            }
        }
        deleted
    }

    /// Forgets deleted runs whose records are purged, and releases their charges.
    pub fn forget(&self, purged: &HashSet<RunId>) {
        let mut tables = self.tables.lock();
        for id in purged {
            if tables.runs.get(id).is_some_and(|run| run.lifecycle() == RunState::Deleted)
                && let Some(run) = tables.runs.remove(id)
            {
                run.release_all(self.quota());
            }
        }
    }
}
