#!/bin/bash
# Schemathesis against a service of its own: no 5xx, no answer that the OpenAPI text does not name, no crash, and every route asked.
# usage: tests/schemathesis/run.sh BUILD [SECONDS] [EXAMPLES] [SEED]
set -u
cd "$(dirname "$0")/../.." || exit 2
build=$1 seconds=${2:-600} examples=${3:-100} seed=${4:-1} here=$PWD
tool=${SCHEMATHESIS:-$build/schemathesis/bin/schemathesis}
if [ ! -x "$tool" ]; then
    python3 -m venv "$build/schemathesis" && "$build/schemathesis/bin/pip" install -qq schemathesis || exit 2
fi
work=$(mktemp -d)
"$build/kilnd" --listen 127.0.0.1:0 --data "$work/data" --hwspecs hwspecs --deadline-ms 5000 --wait-ms 2000 2>"$work/log" &
pid=$!
trap 'kill $pid 2>/dev/null; wait $pid 2>/dev/null; rm -rf "$work"' EXIT
for _ in $(seq 100); do grep -qs '"ready"' "$work/log" && break; sleep 0.1; done
address=$(grep -o '127\.0\.0\.1:[0-9]*' "$work/log" | head -n 1)
tool=$(realpath "$tool")
# A kernel, and a bundle of it, for POST /v1/imports (hooks.py).
curl -sS -H 'Content-Type: application/json' -d '{"op":"Relu","inputs":[{"name":"x","dtype":"f32","shape":[64]}],"target":"host"}' "http://$address/v1/compile" >"$work/kernel"
key=$(python3 -c 'import json, sys; print(json.load(sys.stdin)["key"])' <"$work/kernel") || exit 2
curl -sSf -H 'Content-Type: application/json' -d "{\"keys\":[\"$key\"]}" "http://$address/v1/exports" -o "$work/bundle" || exit 2
(cd "$work" && KILN_BUNDLE=$work/bundle PYTHONPATH=$here/tests/schemathesis timeout -s INT -k 30 $((seconds + 120)) "$tool" --config-file "$here/tests/schemathesis/schemathesis.toml" run "http://$address/openapi.json" \
    --max-time "$seconds" --max-examples "$examples" --seed "$seed" --continue-on-failure --request-timeout 20) >"$work/out" 2>&1
rc=$?
cut -c1-300 "$work/out" | grep -av "^ *$" | awk "/=== (FAILURES|ERRORS|SUMMARY)/ {on = 1} on" | head -n 150
[ $rc = 124 ] && echo "it did not end by itself"
kill -0 $pid || { echo "the service has ended"; tail -n 5 "$work/log"; rc=1; }
fives=$(curl -sS "http://$address/metrics" | grep -E '^kiln_requests_total\{.*code="(500|502|0)"' | grep -v ' 0$')
[ -z "$fives" ] || { echo "$fives"; rc=1; }
curl -sS "http://$address/metrics" >"$work/metrics"
curl -sS "http://$address/openapi.json" | python3 -c '
import json, re, sys
asked = {}
for path, method, code, n in re.findall(r"""^kiln_requests_total\{route="([^"]+)",method="(\w+)",code="(\d+)"\} (\d+)""", open(sys.argv[1]).read(), re.M):
    asked.setdefault((path, method), {})[code] = int(n)
routes = [(p, m.upper()) for p, ms in json.load(sys.stdin)["paths"].items() for m in ms]
never = [r for r in routes if r not in asked]
print(sum(sum(c.values()) for c in asked.values()), "requests,", len(asked), "of", len(routes), "routes;", "never asked:", never or "none")
sys.exit(1 if never else 0)' "$work/metrics" || rc=1
kill $pid && wait $pid || { echo "the service ended with status $?"; rc=1; }
exit $rc
