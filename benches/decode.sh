#!/bin/bash
# Whole files against `ffmpeg -f null -` in alternating pairs, and one frame a second against every frame; prints the ratios.
# Without FILE clips of H.264, HEVC, VP9 and AV1; the last three are encoded here, once.
# usage: benches/decode.sh [FILE...]   PAIRS=n (default 7)   RUNS="ffmpeg all" (default: these, stills and 1fps)
set -euo pipefail
cd "$(dirname "$0")/.."

media="${SIGHTLINE_MEDIA_DIR:-../shared/media}"
pairs="${PAIRS:-7}"
read -ra asked <<<"${RUNS:-ffmpeg all stills 1fps}"
sightline=target/release/sightline
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
TIMEFORMAT='%U %S %R'

# encoded NAME CLIP OPTION...: 20 s of a clip, encoded anew where that is not there yet; prints its path.
encoded() {
    local clip="target/clips/bench/$1.mkv"
    mkdir -p "${clip%/*}"
    if [ ! -e "$clip" ]; then
        ffmpeg -nostdin -loglevel error -y -t 20 -i "$media/clips/$2" -map 0:v:0 "${@:3}" -f matroska "$work/clip"
        mv "$work/clip" "$clip"
    fi
    echo "$clip"
}

# Prints "cpu wall" in seconds of one whole command, its children included.
measure() {
    { time "$@" >"$work/out" 2>"$work/err"; } 2>"$work/time" || {
        cat "$work/err" >&2
        echo "bench-decode: failed: $*" >&2
        exit 1
    }
    awk '{ printf "%.3f %.3f\n", $1 + $2, $3 }' "$work/time"
}

# sorted EXPRESSION: of each pair, whose fields are CPU and wall of one and CPU and wall of the other.
sorted() { awk "{ print $1 }" "$work/pairs" | sort -n; }
median() { sorted "$1" | awk '{ v[NR] = $1 } END { print (NR % 2) ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

# shellcheck disable=SC2016
show() {
    [ -e "$work/$3.runs" ] && [ -e "$work/$4.runs" ] || return 0
    paste "$work/$3.runs" "$work/$4.runs" >"$work/pairs"
    printf '%-28s %-18s %8s %8s %8.2f %8.2f %9.2f %9.2f\n' "$1" "$2" "$(median '$1')" "$(median '$3')" \
        "$(median '$1 / $3')" "$(median '$2 / $4')" "$(sorted '$1 / $3' | sed -n 1p)" "$(sorted '$1 / $3' | sed -n '$p')"
}

[ $# -gt 0 ] || set -- "$media/cuts_dev_720p.mp4" "$media/clips/surv_traffic-camera.mp4" "$media/clips/anim_mb-annexb.mkv" \
    "$(encoded hevc surv_traffic-camera.mp4 -c:v libx265 -x265-params log-level=error)" \
    "$(encoded vp9-720p surv_traffic-camera.mp4 -c:v libvpx-vp9 -b:v 2M -row-mt 1 -cpu-used 5)" \
    "$(encoded vp9-1080p anim_mb-annexb.mkv -c:v libvpx-vp9 -b:v 4M -row-mt 1 -cpu-used 6 -tile-columns 2)" \
    "$(encoded av1-720p surv_traffic-camera.mp4 -c:v libsvtav1 -preset 8)" "$(encoded av1-1080p anim_mb-annexb.mkv -c:v libsvtav1 -preset 8)"
echo "load $(cut -d' ' -f1-3 /proc/loadavg), $(nproc) cores, $pairs pairs, $(ffmpeg -version | sed -n '1s/ Copy.*//p'), $(git describe --always --dirty)"
printf '%-28s %-18s %8s %8s %8s %8s %9s %9s\n' clip what "cpu s" "theirs" cpu-x wall-x cpu-x-min cpu-x-max
for file in "$@"; do
    rm -f "$work"/*.runs
    runs=("${asked[@]}")
    for _ in $(seq "$pairs"); do
        for run in "${runs[@]}"; do
            rm -rf "$work/stills"
            case $run in
                ffmpeg) measure ffmpeg -nostdin -loglevel error -i "$file" -map 0:v:0 -f null - ;;
                all) measure "$sightline" analyze "$file" --json ;;
                stills) measure "$sightline" analyze "$file" --json --stills "$work/stills" ;;
                1fps) measure "$sightline" analyze "$file" --json --fps 1 ;;
                *) echo "decode.sh: RUNS names $run, which is none of ffmpeg, all, stills and 1fps" >&2 && exit 2 ;;
            esac >>"$work/$run.runs"
        done
        # Whoever was first is last in the next round.
        mapfile -t runs < <(printf '%s\n' "${runs[@]}" | tac)
    done
    clip=$(basename "$file")
    show "$clip" "decode + gate" all ffmpeg
    show "$clip" "with stills" stills ffmpeg
    show "$clip" "1 fps" 1fps ffmpeg
    show "$clip" "1 fps / all frames" 1fps all
done
