//! Handling of a test that cannot run here: it fails, unless its environment allows the gap.

/// The setting that lets tests pass over what is missing.
const ALLOWED: &str = "SIGHTLINE_ALLOW_SKIP";

/// Returns true in `make test-long`; elsewhere says that `test` is left to it.
#[allow(
    dead_code,
    clippy::disallowed_methods,
    reason = "few have such tests, and none a configuration"
)]
pub fn is_long(test: &str) -> bool {
    let is_long = std::env::var_os("SIGHTLINE_TEST_LONG").is_some();
    if !is_long {
        println!("LEFT OUT {test}: `make test-long` has it");
    }
    is_long
}

/// Says loudly why `test` proves nothing here; fails it unless `SIGHTLINE_ALLOW_SKIP=1` is set.
#[allow(clippy::disallowed_methods, reason = "tests have no configuration to read it from")]
pub fn skip(test: &str, why: impl std::fmt::Display) {
    let allowed = std::env::var_os(ALLOWED).is_some_and(|value| value == "1");
    assert!(allowed, "{test} cannot run: {why} ({ALLOWED}=1 passes over it)");
    println!("SKIPPED {test}: {why}");
}
