#!/bin/sh
# Succeeds where there is a Node.js that builds the console: 20.19 or newer.
exec node -e 'const [a, b] = process.versions.node.split("."); process.exit(+(a < 20 || (a == 20 && b < 19)))' 2>/dev/null
