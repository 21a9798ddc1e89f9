//! Lists episodes of activity: the time, score and region of motion.

use std::{collections::BTreeMap, iter::Peekable};

use gate::Episode;
use media::{BlobHash, CellBox, Zones};
use timeline::{ActivityEpisode, Event, FramesDecoded, KeyframeStored};

use super::{
    prelude::*,
    streamed_json::{DamagedEvents, Snapshot},
    zones::WatchedZones,
};

/// Region of the picture, in fractions of its sides from the upper left corner.
#[derive(Serialize, ToSchema)]
pub struct Region {
    /// Left edge.
    x: schema_types::Fraction,
    /// Top edge.
    y: schema_types::Fraction,
    width: schema_types::Fraction,
    height: schema_types::Fraction,
}

impl Region {
    /// Returns the region of a box of cells; `None` if the box is empty.
    pub fn of(cells: CellBox) -> Option<Region> {
        let [x, y, width, height] = cells.fractions();
        (!cells.is_empty()).then_some(Region {
            x: x.into(),
            y: y.into(),
            width: width.into(),
            height: height.into(),
        })
    }
}

/// Episode of activity: a period of motion.
#[derive(Serialize, ToSchema)]
#[schema(as = Episode)]
pub struct EpisodeRecord {
    #[schema(value_type = schema_types::Label)]
    stream_id: String,
    /// First frame of the episode.
    start_frame: u64,
    /// Last frame with motion; null during the episode.
    #[schema(required = true)]
    end_frame: Option<u64>,
    start_pts_ms: i64,
    /// Presentation time of the last frame with motion; null during the episode.
    #[schema(required = true)]
    end_pts_ms: Option<i64>,
    /// Highest score of the frames kept for the episode; during the episode, that of the first one.
    peak_score: schema_types::Fraction,
    /// Frame with the peak score.
    peak_frame: u64,
    /// Bounding box of all motion; null if the signals have no regions.
    #[schema(required = true)]
    region: Option<Region>,
    /// Names of the zones with motion.
    zones: Vec<String>,
}

impl EpisodeRecord {
    /// Creates the record of a finished `episode` of `stream` in a recording with these zone names.
    pub fn of(episode: &Episode, stream: &StreamId, zones: &[String]) -> EpisodeRecord {
        EpisodeRecord {
            stream_id: stream.as_str().to_owned(),
            start_frame: episode.start_frame,
            end_frame: Some(episode.end_frame),
            start_pts_ms: episode.start_pts_ms,
            end_pts_ms: Some(episode.end_pts_ms),
            peak_score: episode.peak_score.into(),
            peak_frame: episode.peak_frame,
            region: Region::of(episode.region),
            zones: episode.touched(zones),
        }
    }
}

impl From<ActivityEpisode> for EpisodeRecord {
    fn from(episode: ActivityEpisode) -> EpisodeRecord {
        EpisodeRecord {
            stream_id: episode.stream_id.as_str().to_owned(),
            start_frame: episode.start_frame,
            end_frame: episode.end_frame,
            start_pts_ms: episode.start_pts_ms,
            end_pts_ms: episode.end_pts_ms,
            peak_score: episode.peak_score.into(),
            peak_frame: episode.peak_frame,
            region: Region::of(episode.region),
            zones: episode.zones,
        }
    }
}

/// An episode of a recording.
#[derive(Serialize, ToSchema)]
struct RecordedEpisode {
    #[serde(flatten)]
    episode: EpisodeRecord,
    /// Still of the peak frame, among those of `GET /v1/runs/{id}/keyframes`; null if none was stored.
    #[schema(value_type = Option<schema_types::Sha256>, required = true)]
    image_sha256: Option<String>,
}

/// Episodes of activity of a run.
#[derive(ToSchema)]
#[expect(dead_code, reason = "says what `list` writes")]
struct RunActivity {
    request_id: schema_types::RequestId,
    run_id: schema_types::RunId,
    /// Zones of the newest recording of each stream with zones.
    watched: Vec<WatchedZones>,
    episodes: Vec<RecordedEpisode>,
    /// Number of events that cannot be read, so that this answer leaves them out; absent if there are none.
    #[schema(required = false)]
    damaged_events: u64,
}

/// Reads the episodes of a run from three kinds of events, walked in parallel. A recording logs one episode
/// after the other, and the still of a frame before its other events.
struct Reader {
    starts: Peekable<Snapshot>,
    ends: Peekable<Snapshot>,
    stills: Peekable<Snapshot>,
    /// Last still taken from `stills`: its frame and its hash.
    still: Option<(u64, BlobHash)>,
    newest: BTreeMap<StreamId, Newest>,
    damaged: DamagedEvents,
}

impl Reader {
    /// Creates a reader of the episodes whose first event is at `from` or later.
    fn new(
        timeline: &Timeline,
        run: &Arc<Run>,
        from: Seq,
        damaged: DamagedEvents,
    ) -> ApiResult<Reader> {
        let newest = newest(timeline, run, &damaged)?;
        let of = |kind| Snapshot::new(timeline, run, from, Some(kind)).peekable();
        Ok(Reader {
            starts: of(EventKind::ActivityStarted),
            ends: of(EventKind::ActivityEnded),
            stills: of(EventKind::KeyframeStored),
            still: None,
            newest,
            damaged,
        })
    }

    /// Returns the zones of the newest recordings, of `stream` only if it is given.
    fn watched(&self, stream: Option<&StreamId>) -> Vec<WatchedZones> {
        let newest = self.newest.iter().filter(|(name, newest)| {
            !newest.zones.zones.is_empty() && stream.is_none_or(|stream| stream == *name)
        });
        newest.map(|(name, newest)| WatchedZones::of(name, &newest.zones)).collect()
    }

    /// Returns the next episode, the sequence number of its first event, and its still.
    fn read(&mut self) -> ApiResult<Option<(Seq, ActivityEpisode, Option<BlobHash>)>> {
        loop {
            let Some(start) = next_before(&mut self.starts, Seq(u64::MAX), &self.damaged)? else {
                return Ok(None);
            };
            let (seq, Event::ActivityStarted(started)) = start else { continue };
            let until = match self.starts.peek() {
                Some(Ok(next)) => next.head.seq,
                _ => Seq(u64::MAX),
            };
            let mut ended = None;
            while let Some((at, event)) = next_before(&mut self.ends, until, &self.damaged)? {
                // Skips the end of another episode, one that started meanwhile.
                if let Event::ActivityEnded(episode) = event
                    && (at > seq, episode.request_id, episode.start_frame)
                        == (true, started.request_id, started.start_frame)
                {
                    ended = Some((at, episode));
                }
            }
            let until = ended.as_ref().map_or(until, |(at, _)| *at);
            let episode = ended.map_or(started, |(_, episode)| episode);
            let newest = self.newest.get(&episode.stream_id);
            if newest.is_none_or(|newest| newest.request == episode.request_id) {
                let still = self.still_of(episode.peak_frame, seq, until)?;
                return Ok(Some((seq, episode, still)));
            }
        }
    }

    /// Returns the still of frame `peak`: the last one before the event `seq`, or one between it and `until`.
    fn still_of(&mut self, peak: u64, seq: Seq, until: Seq) -> ApiResult<Option<BlobHash>> {
        while let Some((_, event)) = next_before(&mut self.stills, seq, &self.damaged)? {
            self.keep(event);
        }
        loop {
            if let Some((_, hash)) = self.still.filter(|(frame, _)| *frame == peak) {
                return Ok(Some(hash));
            }
            let next = next_before(&mut self.stills, until, &self.damaged)?;
            let Some((_, event)) = next else { return Ok(None) };
            self.keep(event);
        }
    }

    fn keep(&mut self, event: Event) {
        if let Event::KeyframeStored(KeyframeStored { frame_index, image_sha256, .. }) = event {
            self.still = Some((frame_index, image_sha256));
        }
    }
}

/// Newest recording of a stream, whose signals the API returns for the run.
struct Newest {
    request: RequestId,
    zones: Zones,
}

/// Returns the newest recording of each stream, including one in progress.
fn newest(
    timeline: &Timeline,
    run: &Arc<Run>,
    damaged: &DamagedEvents,
) -> ApiResult<BTreeMap<StreamId, Newest>> {
    // Read before the events, because the recording may end meanwhile.
    let growing = run.growing().map(|growing| growing.decoded.clone());
    let mut newest = BTreeMap::new();
    let mut keep = |decoded: FramesDecoded| {
        let FramesDecoded { stream_id, request_id: request, zones, .. } = decoded;
        newest.insert(stream_id, Newest { request, zones });
    };
    let kind = Some(EventKind::FramesDecoded);
    let mut events = Snapshot::new(timeline, run, Seq(0), kind).peekable();
    while let Some((_, event)) = next_before(&mut events, Seq(u64::MAX), damaged)? {
        if let Event::FramesDecoded(decoded) = event {
            keep(decoded);
        }
    }
    growing.into_iter().for_each(keep);
    Ok(newest)
}

/// Returns the next event before `until`; skips unreadable events, which `damaged` counts.
fn next_before(
    events: &mut Peekable<Snapshot>,
    until: Seq,
    damaged: &DamagedEvents,
) -> ApiResult<Option<(Seq, Event)>> {
    let is_before = |event: &ApiResult<_>| match event {
        Ok(timeline::StreamedEvent { head, .. }) => head.seq < until,
        Err(_) => true,
    };
    while let Some(event) = events.next_if(is_before) {
        if damaged.intact(&event) {
            let event = event?;
            return Ok(Some((event.head.seq, event.decode()?)));
        }
    }
    Ok(None)
}

/// Episodes to list.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ActivityQuery {
    /// Stream of the episodes.
    #[param(value_type = Option<schema_types::Label>)]
    stream_id: Option<StreamId>,
    /// Media time in milliseconds; only episodes that end at or after it, or have not ended.
    #[param(value_type = Option<schema_types::Int64>)]
    from: Option<i64>,
}

declared!(ActivityQuery { stream_id: optional parsed, from: optional from });

fn from(value: &Value) -> Result<i64, ValueError> {
    value.as_str().unwrap_or_default().parse().map_err(|_| "must be a 64-bit integer".into())
}

/// List the episodes of activity of the newest recording of each stream.
///
/// Sorted by their start. An episode in progress has no end.
#[utoipa::path(
    get, path = "/v1/runs/{id}/activity", operation_id = "getActivity", tag = "timeline",
    params(ActivityQuery, PageQuery),
    responses((status = 200, description = "The episodes", body = RunActivity), FailureResponse<503>),
)]
pub async fn list(
    OwnedRun(app, caller, run): OwnedRun,
    QueryParams((query, page)): QueryParams<(ActivityQuery, PageQuery)>,
    uri: Uri,
) -> ApiResult {
    let ActivityQuery { stream_id, from } = query;
    let from_ms = from.unwrap_or(i64::MIN);
    let timeline = app.registry.timeline().clone();
    let (request_id, run_id) = (caller.request_id, run.id());
    let damaged = DamagedEvents::default();
    let held = 3 * READING_BYTES;
    let made = app.reading(&caller.principal, move || {
        let from = page.cursor.unwrap_or(Seq(0));
        let mut reader = Reader::new(&timeline, &run, from, damaged.clone())?;
        let end = move || damaged.end();
        let watched = serde_json::to_string(&reader.watched(stream_id.as_ref()));
        let watched = watched.map_err(|_| ApiError::Bug("zones are no JSON"))?;
        let before = format!(
            r#"{{"request_id":"{request_id}","run_id":"{run_id}","watched":{watched},"episodes":"#
        );
        let read = std::iter::from_fn(move || reader.read().transpose());
        let is_wanted = move |episode: &ActivityEpisode| {
            stream_id.as_ref().is_none_or(|stream| *stream == episode.stream_id)
                && episode.end_pts_ms.is_none_or(|end| end >= from_ms)
        };
        let mut episodes = read.filter(move |episode| {
            episode.as_ref().map_or(true, |(_, episode, _)| is_wanted(episode))
        });
        let record = |read: ApiResult<(Seq, ActivityEpisode, Option<BlobHash>)>| {
            let (_, episode, still) = read?;
            let image_sha256 = still.map(|hash| hash.to_string());
            Ok(RecordedEpisode { episode: episode.into(), image_sha256 })
        };
        let Some(limit) = page.limit else {
            let items = record_texts(episodes.map(record));
            return Ok((listed(before, items, end, held)?, None));
        };
        let page = episodes.by_ref().take(limit).collect::<Result<Vec<_>, _>>()?;
        let more = episodes.next().transpose()?.is_some();
        // The still of an episode's first frame precedes its event, so the next page starts after this event.
        let next = page.last().filter(|_| more).map(|(seq, ..)| Seq(seq.0 + 1));
        let items = record_texts(page.into_iter().map(Ok).map(record));
        Ok::<_, ApiError>((listed(before, items, end, READING_BYTES)?, next))
    });
    let (answer, next) = made.await??;
    Ok(linked(answer, &uri, next))
}
