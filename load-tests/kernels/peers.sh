#!/bin/sh
# `make bench-kernels`: Kiln's kernels on a list of operators against libraries and compiled loops, in one interleaved run (README.md).
# usage: peers.sh BUILD; SHAPES, ONLY, ROUNDS, THREADS, FIT, SPEC, PYPI, LOOPS, BENCH_KEEP and OUT from the environment.
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build}
here=load-tests/kernels
out=${OUT:-$build/bench-kernels}
mkdir -p "$out" "$build/bench" ${BENCH_KEEP:+"$BENCH_KEEP"}
spec=${SPEC:-}
if [ -z "$spec" ]; then
    spec=hwspecs/x86-64-avx2.json
    grep -qw avx512vl /proc/cpuinfo && spec=hwspecs/x86-64-avx512.json
    grep -qw avx512_vnni /proc/cpuinfo && spec=hwspecs/x86-64-vnni.json
    grep -qw avx512_bf16 /proc/cpuinfo && spec=hwspecs/x86-64-bf16.json
    grep -qw amx_int8 /proc/cpuinfo && spec=hwspecs/x86-64-amx.json
fi
flags="-std=gnu11 -O2 -Wall -Wextra -Werror -D_GNU_SOURCE -Icompiler -I."
compile() { # object, sources and flags: only when something here is newer
    object=$1
    shift
    [ -z "$(find "$here" "$build/libkiln.a" -newer "$object" 2>&1 | head -n 1)" ] && return
    # shellcheck disable=SC2086
    gcc $flags "$@" -o "$object"
}
compile "$build/bench/ceiling.o" -march=native -mprefer-vector-width=512 -ffp-contract=fast -Wno-psabi -c $here/ceiling.c
compile "$build/bench/bench" $here/main.c $here/cases.c $here/own.c $here/report.c api/cli/pool*_posix.c "$build/bench/ceiling.o" "$build/libkiln.a" \
    -lcjson -lm -ldl -lpthread
# A peer whose headers or library are not here has no object: the bench says so and goes on.
sed -n 's/^X(\([a-z0-9]*\), "\([^"]*\)", "\([^"]*\)", "\([^"]*\)")$/\1 \3 \4/p' $here/peers.def | while read -r name source libs; do
    # shellcheck disable=SC2086
    compile "$build/bench/peer_$name.so" -fPIC -shared "$here/$source" $(eval echo "$libs") -lm 2>"$build/bench/peer_$name.log" || rm -f "$build/bench/peer_$name.so"
done
# Packages of Python live in a folder of their own, for the system's interpreter, which the bench embeds.
export PYTHONHOME=/usr BENCH_PYPI="${PYPI-torch onnxruntime}" BENCH_PYTHON="$here:$build/bench/pypi"
if [ -n "$BENCH_PYPI" ] && [ ! -e "$build/bench/pypi/.done" ]; then
    if /usr/bin/python3 -m pip install -q --disable-pip-version-check --target "$build/bench/pypi" -r $here/requirements.txt >"$build/bench/pypi.log" 2>&1; then
        touch "$build/bench/pypi/.done"
    else
        echo "bench: no Python packages ($build/bench/pypi.log)"
    fi
fi
export TORCHINDUCTOR_CACHE_DIR="$(realpath "$build")/bench/inductor" # its own, and afresh: what it compiled otherwise is no part of this run
rm -rf "$TORCHINDUCTOR_CACHE_DIR"
threads=${THREADS:-1}
export OMP_NUM_THREADS="$threads" OPENBLAS_NUM_THREADS="$threads" BLIS_NUM_THREADS="$threads"
export OPENBLAS_THREAD_TIMEOUT=20 # 2^20 ticks, half a millisecond or less: its threads yield their processor in a loop for a tenth of a second otherwise
"$build/bench/bench" spec="$spec" peers="$build/bench" shapes="${SHAPES:-$here/shapes.csv}" only="${ONLY:-}" threads="$threads" \
    rounds="${ROUNDS:-9}" loops="${LOOPS:-1}" fit="${FIT:-256}" json="$out/result.json" table="$out/families.tsv" && rc=0 || rc=$?
[ -s "$out/result.json" ] && /usr/bin/python3 $here/table.py "$out/result.json" >"$out/table.md"
command -v gnuplot >/dev/null && [ -s "$out/families.tsv" ] && gnuplot -e "data='$out/families.tsv'; picture='$out/families.png'" $here/picture.gp
exit $rc
