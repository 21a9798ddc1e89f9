//! Episodes of activity with their times, strength and region.

use media::{Activity, CellBox, Score, Signal};

use crate::{Change, Decision};

/// Time in which something moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Episode {
    /// First frame.
    pub start_frame: u64,
    /// Presentation time of the first frame in milliseconds.
    pub start_pts_ms: i64,
    /// Last frame so far that is not quiet.
    pub end_frame: u64,
    /// Presentation time of that frame in milliseconds.
    pub end_pts_ms: i64,
    /// Highest score of the frames kept for the episode.
    pub peak_score: Score,
    /// First frame with that score.
    pub peak_frame: u64,
    /// Box around all cells that moved.
    pub region: CellBox,
    /// Zones in which something moved: bit `i` stands for zone `i`.
    pub zones: u16,
}

impl Episode {
    /// Returns the names of the zones in which something moved; `names` lists all zones in order.
    pub fn touched(&self, names: &[String]) -> Vec<String> {
        Activity::zone_indices(self.zones)
            .filter_map(|at| names.get(at as usize).cloned())
            .collect()
    }
}

/// Start or end of an episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpisodeChange {
    /// The episode started; its fields describe the first frame.
    Started(Episode),
    /// The episode is over.
    Ended(Episode),
}

/// Builds episodes from the decisions of a [`crate::Gate`].
#[derive(Clone, Debug, Default)]
pub struct Episodes {
    open: Option<Episode>,
}

impl Episodes {
    /// Takes the next frame; `is_quiet_below` is the gate's lower threshold.
    pub fn push(
        &mut self,
        signal: &Signal,
        decision: &Decision,
        is_quiet_below: Score,
    ) -> Option<EpisodeChange> {
        let activity = signal.activity.unwrap_or_default();
        let &Signal { frame_index, pts_ms, .. } = signal;
        match (decision.activity, &mut self.open) {
            (Some(Change::Started), _) => {
                let episode = Episode {
                    start_frame: frame_index,
                    start_pts_ms: pts_ms,
                    end_frame: frame_index,
                    end_pts_ms: pts_ms,
                    peak_score: activity.score,
                    peak_frame: frame_index,
                    region: activity.region,
                    zones: activity.zones,
                };
                self.open = Some(episode);
                Some(EpisodeChange::Started(episode))
            }
            (Some(Change::Settled), open) => open.take().map(EpisodeChange::Ended),
            (change, Some(open)) => {
                if change == Some(Change::Peaked) && activity.score > open.peak_score {
                    (open.peak_score, open.peak_frame) = (activity.score, frame_index);
                }
                if activity.score >= is_quiet_below {
                    (open.end_frame, open.end_pts_ms) = (frame_index, pts_ms);
                    open.region = open.region.union(activity.region);
                    open.zones |= activity.zones;
                }
                None
            }
            (_, None) => None,
        }
    }

    /// Returns the open episode.
    pub fn open(&self) -> Option<&Episode> {
        self.open.as_ref()
    }

    /// Ends the open episode because no frame follows.
    pub fn end(&mut self) -> Option<Episode> {
        self.open.take()
    }
}
