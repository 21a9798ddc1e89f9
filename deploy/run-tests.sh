#!/bin/sh
# Runs every test with nextest where it is installed, else with cargo's own runner, then the doc tests. Where
# SIGHTLINE_MEDIA_DIR names a folder of clips, the tests that could run on its clips then do so as well. Says at the
# end how many cases ran on which clips. Arguments are passed on to each: `--features sightline/h3-experimental`.
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
    rm -f "$SIGHTLINE_CLIP_TALLY"
}
trap closing_lines EXIT

# Many tests wait for another process more than they work.
NEXTEST_TEST_THREADS=$(($(nproc) * 3 / 2))
export NEXTEST_TEST_THREADS RUST_TEST_THREADS="$NEXTEST_TEST_THREADS"
# Tests of the API share a server, and so a process. A hung one is ended by the time that all have.
api="timeout 1h cargo test --locked --workspace --test api"
if cargo nextest --version >/dev/null 2>&1; then
    rest="cargo nextest run --locked --workspace -E not(binary_id(sightline::api))"
else
    rest="timeout 1h cargo test --locked --workspace --no-fail-fast --bins --lib --tests"
    api=true
fi
failed=""
try() { "$@" || failed="$failed $2 $3"; }
# shellcheck disable=SC2086 # commands and their arguments
all() {
    try $rest "$@"
    try $api "$@"
}
all "$@"
try cargo test --locked --workspace --doc -q "$@"
if [ -n "$media" ]; then
    tests=$(sed -n 's/^absent [^ ]* \([^ ]*\) .*/\1/p' "$SIGHTLINE_CLIP_TALLY" | sort -u)
    echo "run-tests: $(echo "$tests" | wc -l) tests again, on the clips of SIGHTLINE_MEDIA_DIR"
    export SIGHTLINE_MEDIA_DIR="$media"
    # shellcheck disable=SC2086 # names of tests
    all "$@" -- --exact $tests
fi
[ -z "$failed" ]
