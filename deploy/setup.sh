#!/bin/sh
# Installs the Debian packages that a purpose needs; does nothing when all are there.
#   deploy/setup.sh build|demo|test    each includes the one before it; with --list it only names them
#   deploy/setup.sh packages           what making a Debian to test packages in needs besides those of build
set -eu

build="build-essential cmake libavcodec-dev libavformat-dev libavutil-dev libclang-dev nasm pkg-config python3"
demo="ffmpeg"
test="chromium coturn curl gir1.2-gst-rtsp-server-1.0 gstreamer1.0-plugins-bad gstreamer1.0-plugins-base gstreamer1.0-plugins-good haproxy libffmpeg-nvenc-dev mesa-vulkan-drivers nginx-light postgresql prometheus python3-gi python3-venv shellcheck systemd valgrind"
# For the libav with AddressSanitizer (deploy/minimal-ffmpeg).
[ -z "${SIGHTLINE_TEST_LONG-}" ] || test="$test libdav1d-dev"
# Wherever it is from.
command -v npm >/dev/null 2>&1 || test="$test nodejs npm"

case "${1:-}" in
build) packages=$build ;;
demo) packages="$build $demo" ;;
test) packages="$build $demo $test" ;;
packages) packages="$build debootstrap iproute2 systemd-container" ;;
*)
    echo "usage: deploy/setup.sh build|demo|test|packages [--list]" >&2
    exit 2
    ;;
esac
if [ "${2:-}" = --list ]; then
    echo "$packages"
    exit 0
fi

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
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ] || grep -q 'deploy/setup.sh' "$policy"; then
    trap '$as_root rm -f "$policy"' EXIT
    # dash runs no EXIT trap when a signal ends it; what is left there keeps every later service from starting.
    trap 'exit 130' HUP INT TERM
    # Tests start what they need themselves: no package may start its service.
    printf '#!/bin/sh\n# of deploy/setup.sh while it runs\nexit 101\n' | $as_root tee "$policy" >/dev/null
    $as_root chmod 755 "$policy"
fi
case " $missing " in
*" postgresql "*)
    # The tests make clusters of their own: Debian's, which would start with the machine, is not made.
    $as_root apt-get install -q -y --no-install-recommends postgresql-common
    $as_root sed -i 's/^#\?create_main_cluster.*/create_main_cluster = false/' /etc/postgresql-common/createcluster.conf
    ;;
esac
# shellcheck disable=SC2086 # a list of package names
$as_root apt-get install -q -y --no-install-recommends $missing
# Nor at the next boot, where there is such a thing.
if command -v systemctl >/dev/null 2>&1; then
    for service in prometheus coturn haproxy nginx; do
        case "$missing " in
        *" $service "* | *" $service-light "*)
            $as_root systemctl disable -q "$service.service" || echo "setup: $service stays enabled" >&2
            ;;
        esac
    done
fi
