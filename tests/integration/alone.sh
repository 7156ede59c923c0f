#!/bin/sh
# A kilnd that was copied without kiln-child says what is missing, and does not start to accept what it cannot build. `make run` shows no error.
cd "$(dirname "$0")/../.." || exit 2
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
cp "${KILN_BUILD:-build}/kilnd" "$work/" || exit 2
env -u KILN_WORKER timeout 20 "$work/kilnd" --listen 127.0.0.1:0 --data "$work/data" --hwspecs hwspecs 2>"$work/log"
[ $? -eq 1 ] || { echo "FAIL it started, or ended otherwise"; cat "$work/log"; exit 1; }
grep -q '"event":"start".*kiln-child is missing.*KILN_WORKER.*kiln-worker.*--compile-here=0' "$work/log" || { echo "FAIL it does not say what is missing"; cat "$work/log"; exit 1; }
env -u KILN_WORKER timeout 3 "$work/kilnd" --listen 127.0.0.1:0 --data "$work/data" --hwspecs hwspecs --compile-here=0 2>"$work/log"
grep -q '"event":"ready"' "$work/log" || { echo "FAIL without building here it does not start"; cat "$work/log"; exit 1; }
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])') || exit 2
KILN_LISTEN=127.0.0.1:$port KILN_DATA="$work/run" service/run.sh "${KILN_BUILD:-build}" >"$work/run.log" 2>&1 &
run=$!
for _ in $(seq 2000); do # a probe that comes too early is answered, and no error
    code=$(curl -s -m 2 -o "$work/probe" -w '%{http_code}' "http://127.0.0.1:$port/readyz")
    [ "$code" = 200 ] && break
done
for _ in $(seq 100); do grep -q 'Kiln answers' "$work/run.log" && break; sleep 0.1; done
kill $run
wait $run
grep -q 'Kiln answers' "$work/run.log" || { echo "FAIL make run does not start it"; cat "$work/run.log"; exit 1; }
grep '"level":"error"' "$work/run.log" && { echo "FAIL a first start shows an error"; exit 1; }
echo "# 0 failed"
