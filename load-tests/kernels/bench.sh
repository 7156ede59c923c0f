#!/bin/sh
# `make bench`: Kiln's kernels for this machine against plain loops through gcc -O3. SHAPES=FILE takes other requests, one JSON a line.
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build}
gcc -std=c11 -O2 -D_GNU_SOURCE -Icompiler -I. load-tests/kernels/plain.c "$build/libkiln.a" -lcjson -lm -ldl -o "$build/bench-plain"
spec=x86-64-avx2
grep -qw avx512vl /proc/cpuinfo && spec=x86-64-avx512
exec "$build/bench-plain" hwspecs/$spec.json "${SHAPES:-load-tests/kernels/cases.jsonl}"
