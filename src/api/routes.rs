//! Route table with two targets: a router that serves the handlers, and the OpenAPI document.
//!
//! A release build uses only the router; it serves the document embedded from `schemas/openapi.json`.

use std::sync::Arc;

use axum::{
    Router,
    handler::Handler,
    routing::{MethodFilter, on},
};
use utoipa::{
    __dev::{SchemaReferences, Tags},
    Path,
    openapi::{HttpMethod, OpenApi},
};

use super::App;

/// Adds handlers to a table, each with the annotation type that `utoipa::path` generates.
macro_rules! routes {
    ($table:expr, $($module:ident :: $handler:ident),+ $(,)?) => {
        pastey::paste! {{
            let table = $table;
            $(let table = table.with($module::$handler, $module::[<__path_ $handler>]);)+
            table
        }}
    };
}
pub(super) use routes;

/// Annotation of a handler, as `utoipa::path` generates it.
pub(super) trait Annotation: Path + SchemaReferences + for<'a> Tags<'a> {}
impl<A: Path + SchemaReferences + for<'a> Tags<'a>> Annotation for A {}

/// Route table under construction.
pub(super) trait Routes: Sized {
    /// Adds a handler at the path and the methods of its annotation.
    fn with<T: 'static, A: Annotation>(self, handler: impl Handler<T, Arc<App>>, _: A) -> Self;
}

impl Routes for Router<Arc<App>> {
    fn with<T: 'static, A: Annotation>(self, handler: impl Handler<T, Arc<App>>, _: A) -> Self {
        let methods = A::methods().into_iter().map(filter).reduce(MethodFilter::or);
        self.route(&A::path(), on(methods.expect("an annotation names a method"), handler))
    }
}

fn filter(method: HttpMethod) -> MethodFilter {
    match method {
        HttpMethod::Get => MethodFilter::GET,
        HttpMethod::Put => MethodFilter::PUT,
        HttpMethod::Post => MethodFilter::POST,
        HttpMethod::Head => MethodFilter::HEAD,
        HttpMethod::Patch => MethodFilter::PATCH,
        HttpMethod::Trace => MethodFilter::TRACE,
        HttpMethod::Delete => MethodFilter::DELETE,
        HttpMethod::Options => MethodFilter::OPTIONS,
    }
}

impl Routes for OpenApi {
    fn with<T: 'static, A: Annotation>(mut self, _: impl Handler<T, Arc<App>>, _: A) -> Self {
        let mut operation = A::operation();
        operation.tags.get_or_insert_default().extend(A::tags().into_iter().map(str::to_owned));
        self.paths.add_path_operation(A::path(), A::methods(), operation);
        let mut schemas = Vec::new();
        A::schemas(&mut schemas);
        self.components.get_or_insert_default().schemas.extend(schemas);
        self
    }
}
