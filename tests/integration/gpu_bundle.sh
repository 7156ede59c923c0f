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
echo "# $(grep -c '"status":"ok"' "$work/results") kernels right, $(stat -c %s "$work/b.tar.xz") bytes"
