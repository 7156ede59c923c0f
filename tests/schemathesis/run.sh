#!/bin/bash
# Schemathesis against a service of its own: no 5xx, no answer that the OpenAPI text does not name, no crash.
# usage: tests/schemathesis/run.sh BUILD [SECONDS] [EXAMPLES] [SEED]
set -u
cd "$(dirname "$0")/../.." || exit 2
build=$1 seconds=${2:-600} examples=${3:-100} seed=${4:-1} here=$PWD
tool=${SCHEMATHESIS:-$build/schemathesis/bin/schemathesis}
if [ ! -x "$tool" ]; then
    python3 -m venv "$build/schemathesis" && "$build/schemathesis/bin/pip" install -q schemathesis || exit 2
fi
work=$(mktemp -d)
"$build/kilnd" --listen 127.0.0.1:0 --data "$work/data" --hwspecs hwspecs --deadline-ms 5000 --wait-ms 2000 2>"$work/log" &
pid=$!
trap 'kill $pid 2>/dev/null; wait $pid 2>/dev/null; rm -rf "$work"' EXIT
for _ in $(seq 100); do grep -qs '"ready"' "$work/log" && break; sleep 0.1; done
address=$(grep -o '127\.0\.0\.1:[0-9]*' "$work/log" | head -n 1)
tool=$(realpath "$tool")
(cd "$work" && timeout "$seconds" "$tool" --config-file "$here/tests/schemathesis/schemathesis.toml" run "http://$address/openapi.json" \
    --max-examples "$examples" --seed "$seed" --continue-on-failure --request-timeout 20) >"$work/out" 2>&1
rc=$?
cut -c1-300 "$work/out" | grep -av "^ *$" | awk "/=== (FAILURES|ERRORS|SUMMARY)/ {on = 1} on" | head -n 150
[ $rc = 124 ] && { echo "time is over after $seconds s"; grep -q 'FAILURES' "$work/out" || rc=0; }
kill -0 $pid || { echo "the service has ended"; tail -n 5 "$work/log"; rc=1; }
fives=$(curl -sS "http://$address/metrics" | grep -E '^kiln_requests_total\{.*code="(500|502|0)"' | grep -v ' 0$')
[ -z "$fives" ] || { echo "$fives"; rc=1; }
kill $pid && wait $pid || { echo "the service ended with status $?"; rc=1; }
exit $rc
