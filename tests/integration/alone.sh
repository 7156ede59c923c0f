#!/bin/sh
# A kilnd that was copied without kiln-child says what is missing, and does not start to accept what it cannot build.
cd "$(dirname "$0")/../.." || exit 2
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
cp "${KILN_BUILD:-build}/kilnd" "$work/" || exit 2
env -u KILN_WORKER timeout 20 "$work/kilnd" --listen 127.0.0.1:0 --data "$work/data" --hwspecs hwspecs 2>"$work/log"
[ $? -eq 1 ] || { echo "FAIL it started, or ended otherwise"; cat "$work/log"; exit 1; }
grep -q '"event":"start".*kiln-child is missing.*KILN_WORKER.*kiln-worker.*--compile-here=0' "$work/log" || { echo "FAIL it does not say what is missing"; cat "$work/log"; exit 1; }
env -u KILN_WORKER timeout 3 "$work/kilnd" --listen 127.0.0.1:0 --data "$work/data" --hwspecs hwspecs --compile-here=0 2>"$work/log"
grep -q '"event":"ready"' "$work/log" || { echo "FAIL without building here it does not start"; cat "$work/log"; exit 1; }
echo "# 0 failed"
