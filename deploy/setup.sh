#!/bin/sh
# Installs the Debian packages that building, testing and the demo need; does nothing when all are there.
set -eu

packages="build-essential clang cmake curl ffmpeg libavcodec-dev libavformat-dev libavutil-dev libclang-dev nasm pkg-config"

missing=""
for package in $packages; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null 2>&1; then
    echo "setup: this system has no apt-get; install the equivalents of:$missing" >&2
    exit 1
fi
as_root=""
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null 2>&1 || {
        echo "setup: run as root, or install sudo, to install:$missing" >&2
        exit 1
    }
    as_root=sudo
fi
echo "setup: installing$missing"
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get update -q
# shellcheck disable=SC2086 # a list of package names
$as_root apt-get install -q -y --no-install-recommends $missing
