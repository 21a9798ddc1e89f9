#!/bin/bash
# Cost of live sessions of 720p30 H.264 at 1.5 Mb/s: 1, 8, 16, 24 and 28 of them, at most 8 in a worker.
# usage: benches/live.sh [OPTION...]   options of the example live_cost, such as --stills --shown
# As root, `chrt -r 10 benches/live.sh` puts it ahead of whatever else the machine does.
set -euo pipefail
cd "$(dirname "$0")/.."

media="${SIGHTLINE_MEDIA_DIR:-../shared/media}"
target="${CARGO_TARGET_DIR:-target}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# As a browser's encoder sends it: baseline, no reordering, one slice a picture, 2 s between keyframes.
ffmpeg -v error -nostdin -i "$media/cuts_dev_720p.mp4" -an -t 20 -vf fps=30,scale=1280:720 \
    -c:v libx264 -preset veryfast -profile:v baseline -tune zerolatency -x264-params sliced-threads=0 \
    -b:v 1.5M -maxrate 1.5M -bufsize 1.5M -g 60 "$work/live.mp4"

for sessions in 1:1 1:8 2:8 3:8 4:7; do
    "$target/release/examples/live_cost" "$work/live.mp4" \
        --workers "${sessions%:*}" --each "${sessions#*:}" --seconds 20 "$@"
done
