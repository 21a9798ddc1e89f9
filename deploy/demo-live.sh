#!/bin/sh
# Publishes a clip over and over to a server of its own, and says where its events are; Ctrl-C ends both.
# usage: deploy/demo-live.sh FOLDER   of the binaries sightline and sightline-server
#   VIDEO   the clip; a surveillance clip of SIGHTLINE_MEDIA_DIR, or one that ffmpeg draws, where it is unset
#   SERVICE_VLLM_BASE_URL and the like reach the server: with a model it describes what it sees
set -eu

folder=${1:?names no folder: make demo-live names it}
work=$(mktemp -d)
server=
# The server is of a session of its own: Ctrl-C reaches the publisher alone, which takes leave of it first.
# shellcheck disable=SC2317,SC2329 # the trap calls it
end() {
    trap - EXIT
    if [ -n "$server" ]; then
        kill -TERM "$server" 2>/dev/null || true
        wait "$server" || true
    fi
    rm -rf "$work"
}
trap end EXIT
trap : HUP INT TERM

video=${VIDEO:-}
if [ -z "$video" ]; then
    video="${SIGHTLINE_MEDIA_DIR:-../shared/media}/clips/surv_car-detection.mp4"
    if [ ! -f "$video" ]; then
        video="$work/drawn.mp4"
        ffmpeg -v error -nostdin -f lavfi -i testsrc2=s=640x360:r=25:d=20 -pix_fmt yuv420p \
            -c:v libx264 -preset veryfast -g 50 "$video"
    fi
fi

SERVICE_DATA_DIR="$work/data" SERVICE_BIND_ADDR="${SERVICE_BIND_ADDR:-127.0.0.1:0}" \
    SERVICE_REQUIRE_API_KEY=false setsid "$folder/sightline-server" >"$work/log" 2>&1 &
server=$!
address=
while [ -z "$address" ]; do
    kill -0 "$server" 2>/dev/null || {
        cat "$work/log" >&2
        exit 1
    }
    sleep 0.1
    address=$(sed -n 's/.*listening addr=\([^ ]*\).*/\1/p' "$work/log" | head -n 1)
done

echo "server: http://$address, its log in $work/log"
echo "video:  $video"
"$folder/sightline" whip publish --loop "$video" "http://$address/v1/stream/whip" \
    >"$work/figures" 2>"$work/said" &
publisher=$!
run=
while [ -z "$run" ] && kill -0 "$publisher" 2>/dev/null; do
    sleep 0.1
    run=$(sed -n 's/^run: *//p' "$work/said")
done
if [ -n "$run" ]; then
    echo "run:    http://$address/v1/runs/$run"
    echo "events: http://$address/v1/runs/$run/events"
    echo "stream: http://$address/v1/runs/$run/events/stream"
    echo "Ctrl-C ends it."
fi
status=0
wait "$publisher" || status=$?
# A signal ends the wait, not the publisher.
while kill -0 "$publisher" 2>/dev/null; do
    status=0
    wait "$publisher" || status=$?
done
grep -v '^run:' "$work/said" >&2 || true
cat "$work/figures"
exit "$status"
