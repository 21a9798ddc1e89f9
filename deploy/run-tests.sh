#!/bin/sh
# Runs every test with nextest where it is installed, else with cargo's own runner, then the doc tests.
# Arguments are passed on to each: `--features sightline/h3-experimental`.
set -eu

[ -d "${SIGHTLINE_MEDIA_DIR:-}" ] || {
    echo "run-tests: no directory SIGHTLINE_MEDIA_DIR=${SIGHTLINE_MEDIA_DIR:-unset}:" \
        "tests on real clips fail, or are skipped with SIGHTLINE_ALLOW_SKIP=1" >&2
}
if cargo nextest --version >/dev/null 2>&1; then
    cargo nextest run --locked --workspace "$@"
else
    cargo test --locked --workspace --bins --lib --tests "$@"
fi
cargo test --locked --workspace --doc -q "$@"
