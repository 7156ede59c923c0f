#!/bin/bash
# A bundle from requests to results: packed, built again from the sources in it, and run; the mock driver's functions stand in for the kernels, so that
# inputs, reference and comparison are the real ones.
set -u
cd "$(dirname "$0")/../.." || exit 2
build=${KILN_BUILD:-build} bin=${KILN_BIN:-build}
work=$(mktemp -d "${TMPDIR:-/tmp}/kiln-test-bundle.XXXXXX")
trap 'rm -rf "$work"' EXIT
fail() { echo "failed: $*"; exit 1; }

cat >"$work/requests" <<'END'
# a comment
{"expr":"y[I] = a[I] + b[I]","inputs":[{"name":"a","dtype":"f32","shape":[4099]},{"name":"b","dtype":"f32","shape":[4099]}]}
{"expr":"m[I] >=! x[I,J]; e[I,J] = exp(x[I,J]-m[I]); s[I] +=! e[I,J]; y[I,J] = e[I,J]/s[I]","inputs":[{"name":"x","dtype":"f32","shape":[37,129]}]}
{"op":"Nonsense","inputs":[]}
END
workers/gpu/pack.sh "$build" "$work/requests" nvidia-v100 2 "$work/b.tar.xz" >"$work/log" 2>&1 || { cat "$work/log"; fail "pack.sh"; }
grep -q 'request 3 is left out' "$work/log" || { cat "$work/log"; fail "a request that is none is said to be left out"; }
grep -q '^2 workloads, ' "$work/log" || { cat "$work/log"; fail "two workloads"; }
tar -C "$work" -xJf "$work/b.tar.xz" || fail "the archive"
dir=$work/gpu-bundle
workers/gpu/pack.sh "$build" "$work/requests" nvidia-v100 2 "$work/c.tar.xz" >/dev/null 2>&1
cmp "$work/b.tar.xz" "$work/c.tar.xz" || fail "the same requests, other bytes"

for m in "$dir"/g*k*.*; do # the kernels' places are taken by the mock's functions
    id=$(basename "$m" | cut -d. -f1)
    entry=$(sed -n "/^kernel id=$id /,/^check/s/^launch entry=\([^ ]*\) .*/\1/p" "$dir/bundle.txt" | head -n 1)
    printf 'MOCK arch=90\nfn %s body=add us=3 elems=4099 threads=1024 params=ptr,ptr,ptr\n' "$entry" >"$m"
done
rm "$dir/kiln-gpu-run" # the sources make it again
KILN_LIBCUDA=$(realpath "$bin/tests/libcuda_mock.so") "$dir/run.sh" --batch-ms 0.1 --rounds 3 >"$work/results" 2>"$work/err"
[ $? = 1 ] || { cat "$work/results" "$work/err"; fail "status: the second workload is not computed by the mock"; }
[ -x "$dir/kiln-gpu-run" ] || fail "the runner was not built from the sources"
grep '"group":"g0"' "$work/results" | grep -v '"status":"ok"' && fail "the sum of two tensors is right"
grep '"group":"g0"' "$work/results" | grep -q '"checked":[1-9]' || { cat "$work/results"; fail "points were compared"; }
grep '"group":"g1"' "$work/results" | grep '"status":"ok"' && fail "what was not computed is not right"

port=$(python3 tests/free_port.py)
export KILN_URL=http://127.0.0.1:$port
"$build/kilnd" --listen "127.0.0.1:$port" --data "$work/data" 2>"$work/daemon" &
daemon=$!
trap 'kill $daemon 2>/dev/null; wait $daemon 2>/dev/null; rm -rf "$work"' EXIT
for _ in $(seq 100); do curl -fsS -m 2 "$KILN_URL/readyz" >/dev/null 2>&1 && break; sleep 0.1; done
import() { # expected status, text in the output, file
    "$build/kiln" import-results "$3" >"$work/out" 2>&1
    [ $? = "$1" ] && grep -q "$2" "$work/out" || { cat "$work/out" "$work/daemon"; fail "import-results $3: $1, \"$2\""; }
}
import 0 '1 stored, 0 kept, 0 refused' "$work/results"
import 0 '0 stored, 1 kept, 0 refused' "$work/results"
sed 's/"us":[0-9.]*/"us":1.5/' "$work/results" >"$work/faster"
import 0 '1 stored' "$work/faster"
sed 's/"us":[0-9.]*/"us":0.5/; s/split/splat/' "$work/results" >"$work/broken"
import 65 'refused' "$work/broken"
sed 's/in0/in9/; s/"us":[0-9.]*/"us":0.5/' "$work/results" >"$work/foreign"
import 65 'refused' "$work/foreign"
import 65 'no results' "$work/err"
head -n 3 "$work/results" | head -c -20 >"$work/cut"
import 0 '0 refused' "$work/cut"
key=$(sed -n 's/.*"group":"g0","key":"\([^"]*\)".*"status":"ok".*/\1/p' "$work/results" | head -n 1)
curl -fsS "$KILN_URL/v1/kernels/$key" >"$work/kernel"
for want in '"measured"' '"device":"Mock GPU"' '"driver":13000' '"clock_khz":1980000' '"us":1.5'; do
    tr -d ' \n\t' <"$work/kernel" | grep -qF "$(printf %s "$want" | tr -d ' ')" || { cat "$work/kernel"; fail "the record says $want"; }
done
echo "# $(grep -c '"status":"ok"' "$work/results") kernels right, $(stat -c %s "$work/b.tar.xz") bytes"
