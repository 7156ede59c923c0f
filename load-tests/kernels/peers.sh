#!/bin/sh
# `make bench-kernels`: Kiln's kernels on a list of operators against libraries and compiled loops, in one interleaved run (README.md).
# usage: peers.sh BUILD; SHAPES, ONLY, ROUNDS, THREADS, FIT, SPEC and OUT from the environment.
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build}
here=load-tests/kernels
out=${OUT:-$build/bench-kernels}
mkdir -p "$out" "$build/bench"
spec=${SPEC:-}
if [ -z "$spec" ]; then
    spec=hwspecs/x86-64-avx2.json
    grep -qw avx512vl /proc/cpuinfo && spec=hwspecs/x86-64-avx512.json
    grep -qw amx_int8 /proc/cpuinfo && spec=hwspecs/x86-64-amx.json
fi
flags="-std=gnu11 -O2 -Wall -Wextra -Werror -D_GNU_SOURCE -Icompiler -I."
# shellcheck disable=SC2086
gcc $flags -march=native -mprefer-vector-width=512 -ffp-contract=fast -Wno-psabi -c $here/ceiling.c -o "$build/bench/ceiling.o"
# shellcheck disable=SC2086
gcc $flags $here/main.c $here/cases.c $here/own.c $here/report.c api/cli/pool_posix.c "$build/bench/ceiling.o" "$build/libkiln.a" \
    -lcjson -lm -ldl -lpthread -o "$build/bench/bench"
# A peer whose headers or library are not here has no object: the bench says so and goes on.
sed -n 's/^X(\([a-z0-9]*\), "\([^"]*\)", "\([^"]*\)", "\([^"]*\)")$/\1 \3 \4/p' $here/peers.def | while read -r name source libs; do
    # shellcheck disable=SC2086
    gcc $flags -fPIC -shared $here/$source -o "$build/bench/peer_$name.so" $libs -lm 2>"$build/bench/peer_$name.log" ||
        { rm -f "$build/bench/peer_$name.so"; head -n 3 "$build/bench/peer_$name.log"; }
done
threads=${THREADS:-1}
export OMP_NUM_THREADS="$threads" OPENBLAS_NUM_THREADS="$threads" BLIS_NUM_THREADS="$threads" DNNL_PRIMITIVE_CACHE_CAPACITY=0
"$build/bench/bench" spec="$spec" peers="$build/bench" shapes="${SHAPES:-$here/shapes.csv}" only="${ONLY:-}" threads="$threads" \
    rounds="${ROUNDS:-9}" fit="${FIT:-256}" json="$out/result.json"
