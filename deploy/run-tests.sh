#!/bin/sh
# Runs every test with nextest where it is installed, else with cargo's own runner, then the doc tests. Where
# SIGHTLINE_MEDIA_DIR names a folder of clips, the tests that could run on its clips then do so as well. Says at the
# end how many cases ran on which clips, and which tests failed. A test that fails runs once more,
# and is named if it passes then.
set -eu

media=${SIGHTLINE_MEDIA_DIR-}
if [ -n "${SIGHTLINE_MEDIA_DIR+set}" ] && [ ! -d "$media/clips" ]; then
    echo "run-tests: no folder $media/clips: set SIGHTLINE_MEDIA_DIR to one that has clips, or unset it" >&2
    exit 1
fi
unset SIGHTLINE_MEDIA_DIR
deploy/fetch-clips.sh

SIGHTLINE_CLIP_TALLY=$(mktemp)
export SIGHTLINE_CLIP_TALLY
# A line a case: where its clip is from, the test's program and name, the clip.
count() { sort -u "$SIGHTLINE_CLIP_TALLY" | grep -c "^$1 " || true; }
# shellcheck disable=SC2317,SC2329 # the trap calls it
closing_lines() {
    echo "clips: $(count rendered) cases on rendered clips, $(count wheel) on the wheel's"
    if [ -n "$media" ]; then
        echo "clips: $(count media) of $(count absent) cases on those of SIGHTLINE_MEDIA_DIR"
    else
        echo "clips: none on those of SIGHTLINE_MEDIA_DIR, which is unset; $(count absent) cases are more where it is set"
    fi
    [ -z "$unsteady" ] || echo "run-tests: failed once and passed alone, which is to be mended:$unsteady"
    [ -z "$failed" ] || echo "run-tests: failed:$failed"
    rm -f "$SIGHTLINE_CLIP_TALLY" "$log"
}
unsteady="" failed=""
log=$(mktemp)
trap closing_lines EXIT
trap 'exit 130' HUP INT TERM

# Many tests wait for another process more than they work.
NEXTEST_TEST_THREADS=$(($(nproc) * 2))
export NEXTEST_TEST_THREADS RUST_TEST_THREADS="$NEXTEST_TEST_THREADS"
failure="run-tests: cargo has failed"
# Runs tests under cargo's own runner: those of the targets $1, of which only those named in $2 where it is not empty.
# A hung one is ended by the time that all have.
cargo_test() {
    # shellcheck disable=SC2086 # lists of arguments
    logged timeout 1h cargo test --locked --workspace --no-fail-fast $1 ${2:+-- --exact $2}
}
# Runs a command whose output is kept in the log as well.
logged() {
    { "$@" 2>&1 || echo "$failure"; } | tee "$log"
    ! grep -qx "$failure" "$log"
}
# Names of the tests that failed, by the log.
names() {
    sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p; s/^ *\(TRY [0-9]* \)\{0,1\}FAIL \[.*\] *\(([^)]*)\)\{0,1\} *//p' "$log" |
        sort -u | tr '\n' ' '
}
# The same, and a few that fail run once more by themselves, as nextest has it; those that pass then are named.
tried_again() {
    cargo_test "$1" "$2" && return
    again=$(sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' "$log" | sort -u)
    [ -n "$again" ] && [ "$(echo "$again" | wc -l)" -le 10 ] && cargo_test "$1" "$again" || return 1
    unsteady="$unsteady $(echo "$again" | tr '\n' ' ')"
}
# Tests of the API share a server, and so a process: nextest, with a process for each test, runs the others.
all() {
    if cargo nextest --version >/dev/null 2>&1; then
        # shellcheck disable=SC2086 # lists of arguments
        logged cargo nextest run --locked --workspace -E 'not(binary_id(sightline::api))' ${1:+-- --exact $1} ||
            failed="$failed nextest ($(names))"
        tried_again "--test api" "$1" || failed="$failed api ($(names))"
    else
        tried_again "--bins --lib --tests --examples" "$1" || failed="$failed tests ($(names))"
    fi
}
all ""
cargo test --locked --workspace --doc -q || failed="$failed doc"
# The TypeScript client against the server that the tests have built: on this Node.js, then on the oldest that is promised.
client() {
    cargo build --locked -q --workspace --bins --example described_log &&
        (cd clients/typescript && npm ci --silent && npm run --silent build && npm run --silent check &&
            npm test --silent && npm run --silent test:oldest)
}
# Beside the console's tests: each waits more than it works.
client >"$log" 2>&1 &
client=$!
console/test.sh || failed="$failed console"
deploy/check/run || failed="$failed deploy"
# A cluster of three nodes on this machine is too heavy for every change.
[ -z "${SIGHTLINE_TEST_LONG-}" ] || deploy/ray/test || failed="$failed ray"
wait "$client" || failed="$failed client"
cat "$log"
tests=$(sed -n 's/^absent [^ ]* \([^ ]*\) .*/\1/p' "$SIGHTLINE_CLIP_TALLY" | sort -u)
if [ -n "$media" ] && [ -n "$tests" ]; then
    echo "run-tests: $(echo "$tests" | wc -l) tests again, on the clips of SIGHTLINE_MEDIA_DIR"
    export SIGHTLINE_MEDIA_DIR="$media"
    all "$tests"
fi
[ -z "$failed" ]
