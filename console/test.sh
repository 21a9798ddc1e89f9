#!/bin/sh
# Tests the console: types, units, the size of its JavaScript, and its pages in Chromium on target/debug/sightline-server.
set -eu

cd "$(dirname "$0")"
if ! ../deploy/has-node.sh; then
    [ -z "${SIGHTLINE_ALLOW_SKIP-}" ] || { echo "SKIPPED the console's tests: no Node.js 20.19 or newer"; exit 0; }
    echo "console: its tests need Node.js 20.19 or newer (SIGHTLINE_ALLOW_SKIP=1 passes over them)" >&2
    exit 1
fi
npm ci --silent --no-audit --no-fund
npm run --silent check
npm test --silent
make --no-print-directory -C .. console
npm run --silent size
npm run --silent browser
