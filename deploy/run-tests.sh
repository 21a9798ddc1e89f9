#!/bin/sh
# Runs every test, in two lanes at once: nextest's tests, and beside them those of the API, the documents, the console,
# the client and deploy. Where nextest is not installed, cargo's own runner takes its place.
# Where SIGHTLINE_MEDIA_DIR names a folder of clips, the tests that can run on its clips do so, and where SIGHTLINE_TEST_LONG is
# set they then run on built-in ones as well. Says at the end how many cases ran on which clips, and which tests failed. A test that
# fails runs once more, and is named if it passes then; those of crashes, faults and orders of events do not.
set -eu

# A lane is this script again, in a process group that can be ended: `lane FOLDER [TESTS]` with the folder of its notes.
lane=${1-} work=${2-} tests=${3-}

# Many tests wait for another process more than they work, and two lanes run at once.
NEXTEST_TEST_THREADS=$(($(nproc) * 3 / 2))
export NEXTEST_TEST_THREADS RUST_TEST_THREADS="$NEXTEST_TEST_THREADS"
has_nextest() { cargo nextest --version >/dev/null 2>&1; }
failed() { echo "$*" >>"$work/failed"; }
# Runs a command whose output is kept in the lane's log as well.
logged() {
    { "$@" 2>&1 || echo "run-tests: cargo has failed"; } | tee "$work/$lane.log"
    ! grep -qx "run-tests: cargo has failed" "$work/$lane.log"
}
# Names of the tests that failed, by the log.
names() {
    sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p; s/^ *\(TRY [0-9]* \)\{0,1\}FAIL \[.*\] *\(([^)]*)\)\{0,1\} *//p' \
        "$work/$lane.log" | sort -u | tr '\n' ' '
}
# Runs tests under cargo's own runner: those of the targets $1 that $2 names. A hung one is ended by the time that all have.
cargo_test() {
    # shellcheck disable=SC2086 # lists of arguments
    logged timeout 2h cargo test --locked --workspace --no-fail-fast $1 -- $2
}
# The same, and a few that fail run once more by themselves, as nextest has it; those that pass then are named.
tried_again() {
    cargo_test "$1" "$2" && return
    again=$(sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' "$work/$lane.log" | sort -u)
    once=$(sed -n "s|^filter = 'test(/\(.*\)/) or binary(schedules)'\$|\1|p" .config/nextest.toml)
    echo "$again" | grep -Eq "$once" && return 1
    [ -n "$again" ] && [ "$(echo "$again" | wc -l)" -le 10 ] && cargo_test "$1" "--exact $again" || return 1
    echo "$again" >>"$work/unsteady"
}
# Tests of the API share a server, and so a process: nextest, with a process for each test, runs the others.
api() { ! has_nextest || tried_again "--test system" "$1" || failed "api ($(names))"; }
# The TypeScript client against the server that the tests have built: on this Node.js, then on the oldest that is promised.
client() {
    cd clients/typescript && npm ci --silent && npm run --silent build && npm run --silent check &&
        npm test --silent && npm run --silent test:oldest
}

case "$lane" in
nextest)
    if has_nextest; then
        # shellcheck disable=SC2086 # lists of arguments
        logged cargo nextest run --locked --workspace -E 'not(binary_id(sightline::system) & test(/^api::/))' \
            ${tests:+-- --exact $tests} ||
            failed "nextest ($(names))"
    else
        tried_again "--tests --examples" "${tests:+--exact $tests}" || failed "tests ($(names))"
    fi
    exit
    ;;
others)
    if [ -n "$tests" ]; then
        api "--exact $(echo "$tests" | grep '^api::')"
        exit
    fi
    api api::
    cargo test --locked --workspace --doc -q || failed doc
    # Beside the console's: each waits more than it works.
    client >"$work/client.log" 2>&1 &
    console/test.sh || failed console
    wait "$!" || failed client
    cat "$work/client.log"
    deploy/check/run || failed deploy
    [ -n "${SIGHTLINE_TEST_LONG-}" ] || exit 0
    # Too heavy for every change: a cluster of three nodes, and each access of libav's to memory on damaged files.
    deploy/ray/test || failed ray
    checked="$PWD/target/ffmpeg-asan-$(pkg-config --modversion libavcodec)"
    with="env ASAN_OPTIONS=detect_leaks=0 LD_LIBRARY_PATH=$checked/lib LD_PRELOAD=$(gcc -print-file-name=libasan.so)"
    [ -d "$checked" ] || { SANITIZER=address deploy/minimal-ffmpeg "$checked.part" && mv "$checked.part" "$checked"; }
    cargo test --config "target.'cfg(unix)'.runner = '$with'" --locked --workspace --test media -q -- \
        damage:: --skip what_is_no_video || failed "damaged files under AddressSanitizer"
    exit
    ;;
esac

media=${SIGHTLINE_MEDIA_DIR-}
if [ -n "${SIGHTLINE_MEDIA_DIR+set}" ] && [ ! -d "$media/clips" ]; then
    echo "run-tests: no folder $media/clips: set SIGHTLINE_MEDIA_DIR to one that has clips, or unset it" >&2
    exit 1
fi
deploy/fetch-clips.sh
cargo test --locked --workspace --no-run
cargo build --locked -q --workspace --bins --examples

work=$(mktemp -d)
export SIGHTLINE_CLIP_TALLY="$work/clips"
touch "$work/clips" "$work/failed" "$work/unsteady"
# A line a case: where its clip is from, the test's program and name, the clip.
count() { sort -u "$SIGHTLINE_CLIP_TALLY" | grep -c "^$1 " || true; }
# shellcheck disable=SC2317,SC2329 # the trap calls it
closing_lines() {
    for lane in $lanes; do kill -- "-$lane" 2>/dev/null || true; done
    echo "clips: $(count rendered) cases on rendered clips, $(count wheel) on the wheel's"
    if [ -n "$media" ]; then
        echo "clips: $(count media) cases on those of SIGHTLINE_MEDIA_DIR"
    else
        echo "clips: none on those of SIGHTLINE_MEDIA_DIR, which is unset; $(count absent) cases are more where it is set"
    fi
    sed 's/^/run-tests: failed once and passed alone, which is to be mended: /' "$work/unsteady"
    sed 's/^/run-tests: failed: /' "$work/failed"
    rm -rf "$work"
}
lanes=""
trap closing_lines EXIT
trap 'exit 130' HUP INT TERM

# Both lanes to their end; what the second says comes after the first.
both() {
    setsid "$0" others "$work" "$1" >"$work/others" 2>&1 &
    others=$!
    setsid "$0" nextest "$work" "$1" &
    lanes="$others $!"
    wait "$!" || failed "nextest's lane"
    wait "$others" || failed "the other lane"
    lanes=""
    cat "$work/others"
}
both ""
tests=$(sed -n 's/^media [^ ]* \([^ ]*\) .*/\1/p' "$SIGHTLINE_CLIP_TALLY" | sort -u)
if [ -n "${SIGHTLINE_TEST_LONG-}" ] && [ -n "$tests" ]; then
    echo "run-tests: $(echo "$tests" | wc -l) tests again, on built-in clips"
    unset SIGHTLINE_MEDIA_DIR
    both "$tests"
fi
[ ! -s "$work/failed" ]
