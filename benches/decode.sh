#!/bin/bash
# Decode + gate of whole files against `ffmpeg -f null -`, in alternating pairs; prints the ratios.
# usage: benches/decode.sh [FILE...]   PAIRS=n (default 7)
set -euo pipefail
cd "$(dirname "$0")/.."

media="${SIGHTLINE_MEDIA_DIR:-../shared/media}"
pairs="${PAIRS:-7}"
sightline=target/release/sightline
[ $# -gt 0 ] || set -- "$media/cuts_dev_720p.mp4" "$media/clips/surv_traffic-camera.mp4" "$media/clips/anim_mb-annexb.mkv"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
TIMEFORMAT='%U %S %R'

# Prints "cpu wall" in seconds of one whole command, its children included.
measure() {
    { time "$@" >"$work/out" 2>"$work/err"; } 2>"$work/time" || {
        cat "$work/err" >&2
        echo "bench-decode: failed: $*" >&2
        exit 1
    }
    awk '{ printf "%.3f %.3f\n", $1 + $2, $3 }' "$work/time"
}

median() { sort -n | awk '{ v[NR] = $1 } END { print (NR % 2) ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

# compare NAME FILE ours...: the medians of our CPU and wall over ffmpeg's, pair by pair.
compare() {
    local name=$1 file=$2 theirs ours
    shift 2
    : >"$work/cpu" && : >"$work/wall" && : >"$work/ours" && : >"$work/theirs"
    for _ in $(seq "$pairs"); do
        theirs=$(measure ffmpeg -nostdin -loglevel error -i "$file" -map 0:v:0 -f null -)
        ours=$(measure "$@")
        echo "$ours $theirs" | awk '{ print $1 / $3 }' >>"$work/cpu"
        echo "$ours $theirs" | awk '{ print $2 / $4 }' >>"$work/wall"
        echo "$ours" >>"$work/ours"
        echo "$theirs" >>"$work/theirs"
    done
    printf '%-28s %-16s %8s %8s %8s %8s %9s %9s\n' "$(basename "$file")" "$name" \
        "$(median <"$work/ours")" "$(median <"$work/theirs")" \
        "$(median <"$work/cpu")" "$(median <"$work/wall")" \
        "$(sort -n "$work/cpu" | head -1)" "$(sort -n "$work/cpu" | tail -1)"
}

echo "load $(cut -d' ' -f1-3 /proc/loadavg), $(nproc) cores, $pairs pairs, $(ffmpeg -version | head -1 | cut -d' ' -f1-3)"
printf '%-28s %-16s %8s %8s %8s %8s %9s %9s\n' clip what "ours s" "ffmpeg s" cpu-x wall-x cpu-x-min cpu-x-max
for file in "$@"; do
    compare "decode+gate" "$file" "$sightline" analyze "$file" --json
    rm -rf "$work/stills"
    compare "and stills" "$file" "$sightline" analyze "$file" --json --stills "$work/stills"
    compare "1 fps" "$file" "$sightline" analyze "$file" --json --fps 1
done
