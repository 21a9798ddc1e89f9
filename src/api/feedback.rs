//! Feedback of callers on their runs: stored in the database, listed newest first.

use media::{FeedbackId, WallTime};
use tokio::runtime::Handle;
use tokio_postgres::Row;

use super::prelude::*;
use crate::base::database::{self, Database, DatabaseError, NewFeedback};

/// Rows fetched at a time for an unpaged list.
const SLICE: usize = 100;

impl App {
    pub(super) fn database(&self) -> ApiResult<&Database> {
        self.deliveries.database.as_ref().ok_or(ApiError::DatabaseMissing)
    }
}

/// Rejects NUL, which PostgreSQL cannot store.
fn storable<const MIN: usize, const MAX: usize>(
    BoundedText(text): BoundedText<MIN, MAX>,
) -> Result<String, ValueError> {
    if text.contains('\0') { Err("must not hold the character U+0000".into()) } else { Ok(text) }
}

/// Rating from 0 (worthless) to 10 (perfect).
pub type Rating = BoundedInt<0, 10>;
pub type Category = BoundedText<1, 128>;
pub type FeedbackText = BoundedText<0, 8192>;

/// Feedback of a caller on a run.
#[derive(ToSchema)]
struct FeedbackRequest {
    /// Rating from 0 to 10.
    #[schema(inline)]
    rating: Rating,
    /// Category, in the caller's own words, without U+0000.
    #[schema(min_length = 1, max_length = 128, pattern = r"^[^\u0000]*$")]
    category: String,
    /// Text of the feedback, without U+0000.
    #[schema(max_length = 8192, pattern = r"^[^\u0000]*$")]
    feedback: Option<String>,
}

declared!(FeedbackRequest {
    rating,
    category: required | value | Category::read(value).and_then(storable),
    feedback: optional | value | FeedbackText::read(value).and_then(storable),
});

/// Feedback that was stored.
#[derive(Serialize, ToSchema)]
pub struct FeedbackCreated {
    request_id: schema_types::RequestId,
    run_id: schema_types::RunId,
    feedback_id: schema_types::FeedbackId,
    /// Always `submitted`.
    status: &'static str,
}

/// Submit feedback on a run; needs the database.
#[utoipa::path(
    post, path = "/v1/runs/{id}/feedback", operation_id = "submitFeedback", tag = "feedback",
    request_body = FeedbackRequest,
    responses((status = 200, description = "Stored", body = FeedbackCreated)),
)]
pub async fn submit(
    OwnedRun(app, caller, run): OwnedRun,
    body: JsonBody,
) -> ApiResult<Json<FeedbackCreated>> {
    let FeedbackRequest { rating: BoundedInt(rating), category, feedback } = body.read()?;
    let id = FeedbackId::from_bytes(crate::base::random_bytes());
    let (run, principal) = (run.id(), caller.principal);
    let feedback = NewFeedback { id, run, principal, rating: rating as u8, category, feedback };
    app.database()?.submit(&feedback).await?;
    Ok(Json(FeedbackCreated {
        request_id: caller.request_id.into(),
        run_id: run.into(),
        feedback_id: id.into(),
        status: "submitted",
    }))
}

/// Feedback on a run.
#[derive(Serialize, ToSchema)]
struct Feedback {
    #[schema(value_type = schema_types::FeedbackId)]
    feedback_id: String,
    #[schema(value_type = schema_types::RunId)]
    run_id: String,
    rating: i16,
    category: String,
    #[schema(required = true)]
    feedback: Option<String>,
    created_at: schema_types::Timestamp,
}

impl Feedback {
    /// Reads a row, which may hold invalid values if the table was edited by hand.
    fn of(row: &Row) -> Result<Feedback, DatabaseError> {
        Ok(Feedback {
            feedback_id: row.try_get("feedback_id")?,
            run_id: row.try_get("run_id")?,
            rating: row.try_get("rating")?,
            category: row.try_get("category")?,
            feedback: row.try_get("feedback")?,
            created_at: WallTime { epoch_ms: row.try_get("created_ms")? }.into(),
        })
    }
}

/// Feedback on the caller's runs.
#[derive(Serialize, ToSchema)]
struct FeedbackPage {
    request_id: schema_types::RequestId,
    feedback: Vec<Feedback>,
}

/// List feedback on the caller's runs, newest first; needs the database.
#[utoipa::path(
    get, path = "/v1/feedback", operation_id = "listFeedback", tag = "feedback",
    params(PageQuery),
    responses((status = 200, description = "The feedback", body = FeedbackPage)),
)]
pub async fn list(
    Call(app, caller): Call,
    QueryParams(page): QueryParams<PageQuery>,
    uri: Uri,
) -> ApiResult {
    let before = page.cursor.map(|cursor| cursor.0);
    let (request_id, owner) = (caller.request_id, caller.principal);
    if let Some(limit) = page.limit {
        let page = slice(&app, &owner, before, limit).await?;
        let answer = Json(FeedbackPage { request_id: request_id.into(), feedback: page.feedback });
        return Ok(linked(answer, &uri, page.next));
    }
    // A database that hangs keeps the caller waiting here, not on a thread, which its disconnect would not free.
    let mut read = Some(slice(&app, &owner, before, SLICE).await?);
    let (reader, runtime) = (Arc::clone(&app), Handle::current());
    let feedback = sliced(before, move |before| {
        let page = match read.take() {
            Some(page) => page,
            None => runtime.block_on(slice(&reader, &owner, before, SLICE))?,
        };
        Ok((page.feedback, page.next.map(Some)))
    });
    let text = format!(r#"{{"request_id":"{request_id}","feedback":"#);
    let texts = record_texts(feedback);
    app.blocking(move || listed(text, texts, || "}".to_owned(), READING_BYTES)).await?
}

async fn slice(
    app: &App,
    owner: &Principal,
    before: Option<u64>,
    limit: usize,
) -> ApiResult<database::FeedbackPage<Feedback>> {
    // The log decides which runs are deleted: the database may lag, and runs of other servers must not
    // be shown.
    let is_visible =
        |run: &str| run.parse().is_ok_and(|run: RunId| app.registry.find(run, owner).is_some());
    Ok(app.database()?.feedback(owner, before, limit, is_visible, Feedback::of).await?)
}
