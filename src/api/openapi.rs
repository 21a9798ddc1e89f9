//! Builds the OpenAPI document from annotated handlers and rules common to all routes.
//!
//! A handler declares its own parts: body, answer, and failures that not every route has, as
//! `FailureResponse<409>`. Credentials, ids in paths, and failures of any request are added here.

pub mod events;
pub mod schema_types;

use std::{collections::BTreeMap, marker::PhantomData, sync::LazyLock};

use axum::Extension;
use utoipa::{
    IntoResponses, OpenApi, PartialSchema,
    openapi::{
        self, Content, HeaderBuilder, Ref, RefOr, Required, Response, ResponseBuilder,
        path::{Operation, Parameter, ParameterBuilder, ParameterIn, PathItem},
        schema::{AdditionalProperties, Schema},
        security::{
            ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
        },
    },
};

use super::{
    embedded::Packed, error, extract::BODY_BYTES_MAX, middleware::fails_in_plain_text, prelude::*,
    send_budget::BufferedBytes, signals::FrameNumber, whip,
};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Sightline",
        description = include_str!("openapi/about.md"),
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    servers((url = "/")),
    components(schemas(error::ErrorResponse, schema_types::RequestId, whip::PublishConfig)),
)]
struct Document;

/// `schemas/openapi.json` as of the build.
pub const PUBLISHED: Packed = Packed(include_bytes!(concat!(env!("OUT_DIR"), "/openapi.json.gz")));

/// A failure that a handler may answer with, as a response in the document.
pub struct FailureResponse<const STATUS: u16>;

impl<const STATUS: u16> IntoResponses for FailureResponse<STATUS> {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        BTreeMap::from([(STATUS.to_string(), failure(STATUS))])
    }
}

/// A body for which unknown fields are refused.
pub struct DenyUnknownFields<T>(PhantomData<T>);

impl<T: ToSchema> PartialSchema for DenyUnknownFields<T> {
    fn schema() -> RefOr<Schema> {
        let RefOr::T(Schema::Object(mut object)) = T::schema() else { return T::schema() };
        object.additional_properties = Some(Box::new(AdditionalProperties::FreeForm(false)));
        Schema::Object(object).into()
    }
}

impl<T: ToSchema> ToSchema for DenyUnknownFields<T> {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        T::schemas(schemas);
    }
}

/// Failures with a response in the document: status, name, condition.
const FAILURES: [(u16, &str, &str); 13] = [
    (400, "Malformed", "The request is not what HTTP or JSON allows"),
    (
        401,
        "Unauthorized",
        "No credential, an unknown one, two different ones, or no tenant where one is required",
    ),
    (403, "Forbidden", "The origin may not read answers"),
    (404, "NotFound", "Nothing there that the caller may see"),
    (409, "Conflict", "The run does not take the action"),
    (412, "PreconditionFailed", "A condition of the request does not hold"),
    (413, "TooLarge", "The body is larger than the route takes"),
    (415, "UnsupportedMediaType", "The body is compressed or not of the type that the route takes"),
    (416, "RangeNotSatisfiable", "No byte of the range is there"),
    (422, "Invalid", "Fields that cannot be accepted; `details` names each"),
    (429, "RateLimited", "Too many requests of all callers, or of this one"),
    (500, "Internal", "A failure of the server; what is known of it is in its log"),
    (503, "Unavailable", "The server cannot take this work now"),
];

const PLAIN: [u16; 5] = [400, 412, 413, 415, 416];

fn failure(status: u16) -> RefOr<Response> {
    let named = FAILURES.iter().find(|(known, ..)| *known == status);
    let (_, name, _) = named.expect("a status of the table");
    Ref::from_response_name(*name).into()
}

/// Returns the response for a failure of a route whose failures are all plain text.
fn plain_failure(status: u16) -> RefOr<Response> {
    let when = FAILURES.iter().find(|(known, ..)| *known == status).map_or("", |(.., when)| when);
    let content = Content::new(Some(String::schema()));
    ResponseBuilder::new().description(when).content("text/plain", content).build().into()
}

/// Return the OpenAPI document.
///
/// The repository has the same text as `schemas/openapi.json`.
#[utoipa::path(
    get, path = "/v1/openapi.json", operation_id = "getOpenApi", tag = "server",
    responses((status = 200, description = "This document", body = schema_types::AnyObject)),
)]
pub async fn document(headers: HeaderMap) -> impl IntoResponse {
    static WHOLE: LazyLock<Bytes> = LazyLock::new(|| PUBLISHED.whole());
    let kind = [(header::CONTENT_TYPE, "application/json")];
    // All answers share the same bytes, so they count nothing against send budgets.
    (Extension(BufferedBytes(0)), kind, PUBLISHED.answer(&headers, || WHOLE.clone()))
}

pub fn empty() -> openapi::OpenApi {
    Document::openapi()
}

/// Completes `document` with the parts common to all routes.
pub fn complete(mut document: openapi::OpenApi) -> openapi::OpenApi {
    document.info.version = env!("CARGO_PKG_VERSION").to_owned();
    document.security = Some(vec![
        SecurityRequirement::new("api_key", [""; 0]),
        SecurityRequirement::new("bearer", [""; 0]),
    ]);
    let components = document.components.get_or_insert_default();
    let key = ApiKeyValue::with_description("x-api-key", "A key of SERVICE_API_KEYS");
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer);
    let bearer = bearer.description(Some("The same key, by the header that browsers know"));
    components.add_security_scheme("api_key", SecurityScheme::ApiKey(ApiKey::Header(key)));
    components.add_security_scheme("bearer", SecurityScheme::Http(bearer.build()));
    components.schemas.extend(schema_types::all());
    components.schemas.values_mut().for_each(fix_schema);
    for (status, name, when) in FAILURES {
        components.responses.insert(name.to_owned(), described(status, when));
    }
    let paths = std::mem::take(&mut document.paths.paths).into_iter();
    // OpenAPI has no syntax for wildcard path parameters.
    document.paths.paths = paths.map(|(path, item)| (path.replace("{*", "{"), item)).collect();
    for (path, item) in &mut document.paths.paths {
        for operation in operations(item) {
            finish(path, operation);
        }
    }
    document
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [
        &mut item.get,
        &mut item.post,
        &mut item.put,
        &mut item.patch,
        &mut item.delete,
        &mut item.options,
    ]
    .into_iter()
    .flatten()
}

fn finish(path: &str, operation: &mut Operation) {
    let sees_to_keys_itself = operation.security.is_some();
    let mut fails = vec![400, 429, 500];
    let parameters = operation.parameters.get_or_insert_default();
    for name in path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')) {
        if name == "id" {
            fails.push(404);
        }
        // Replaces the extractor's parameter, which has less detail.
        parameters.retain(|known| !is_called(known, name));
        parameters.push(path_parameter(name).into());
    }
    if !sees_to_keys_itself {
        fails.extend([401, 422]);
        parameters.push(tenant().into());
    }
    if let Some(RefOr::T(body)) = &mut operation.request_body {
        fails.extend([413, 415]);
        for content in body.content.values_mut() {
            if let RefOr::T(Content { schema: Some(schema), .. }) = content {
                fix_schema(schema);
            }
        }
    }
    let responses = &mut operation.responses.responses;
    let is_plain = fails_in_plain_text(path);
    for status in fails {
        let response = || if is_plain { plain_failure(status) } else { failure(status) };
        responses.entry(status.to_string()).or_insert_with(response);
    }
    if parameters.iter().any(|known| is_called(known, "cursor")) {
        let link = "The next page, `rel=\"next\"`; absent on the last";
        add_header(responses.get_mut("200"), "link", link, String::schema());
    }
    for response in responses.values_mut() {
        add_request_id(Some(response));
    }
}

/// Flattens fields of `schema` that are an `allOf` of a type and a description.
///
/// The derive generates these for required inlined fields that have a description.
fn fix_schema(schema: &mut RefOr<Schema>) {
    let RefOr::T(Schema::Object(object)) = schema else { return };
    for field in object.properties.values_mut() {
        let RefOr::T(Schema::AllOf(all)) = field else { continue };
        if let [RefOr::T(Schema::Object(what)), RefOr::T(Schema::Object(said))] = &mut all.items[..]
        {
            what.description = said.description.take();
            *field = Schema::Object(what.clone()).into();
        }
    }
}

fn is_called(parameter: &RefOr<Parameter>, name: &str) -> bool {
    matches!(parameter, RefOr::T(parameter) if parameter.name == name)
}

fn path_parameter(name: &str) -> Parameter {
    let (schema, description) = match name {
        "id" => (schema_types::RunId::schema(), "The run"),
        "job_id" => (schema_types::JobId::schema(), "The job"),
        "webhook_id" => (schema_types::WebhookId::schema(), "The webhook"),
        "sha256" => (schema_types::Sha256::schema(), "SHA-256 of the still"),
        "frame_index" => (FrameNumber::schema(), "Position among the analysed frames"),
        "sess" => (schema_types::SessionId::schema(), "The session"),
        "name" => (schema_types::FileName::schema(), "Name of an upload"),
        _ => (String::schema(), ""),
    };
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .description((!description.is_empty()).then_some(description))
        .schema(Some(schema))
        .build()
}

fn tenant() -> Parameter {
    ParameterBuilder::new()
        .name("x-tenant-id")
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some("Tenant of the request, empty for none: metadata, no boundary"))
        .schema(Some(schema_types::Tenant::schema()))
        .build()
}

/// Adds a header to a response, unless the response is a reference.
fn add_header(
    response: Option<&mut RefOr<Response>>,
    name: &str,
    says: &str,
    schema: impl Into<RefOr<Schema>>,
) {
    if let Some(RefOr::T(response)) = response {
        let header = HeaderBuilder::new().schema(Some(schema)).description(Some(says)).build();
        response.headers.insert(name.to_owned(), header.into());
    }
}

fn add_request_id(response: Option<&mut RefOr<Response>>) {
    let id = Ref::from_schema_name(schema_types::RequestId::name());
    add_header(response, "x-request-id", "Id of the request", id);
}

fn described(status: u16, when: &str) -> RefOr<Response> {
    let (media_type, schema): (_, RefOr<Schema>) = match PLAIN.contains(&status) {
        true => ("text/plain", String::schema()),
        false => ("application/json", Ref::from_schema_name(error::ErrorResponse::name()).into()),
    };
    let mut response = ResponseBuilder::new()
        .description(match status {
            413 => format!("{when}; a JSON body is at most {BODY_BYTES_MAX} bytes"),
            _ => when.to_owned(),
        })
        .content(media_type, Content::new(Some(schema)))
        .build()
        .into();
    add_request_id(Some(&mut response));
    if matches!(status, 429 | 503) {
        let says = "Seconds after which to try again";
        add_header(Some(&mut response), "retry-after", says, u32::schema());
    }
    response
}
