#!/bin/sh
# `make bench-rank`: what the cost model's ranking is worth on this machine (README.md); REQUESTS, ROUNDS, THREADS and SPEC from the environment.
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build}
here=load-tests/kernels
spec=${SPEC:-}
mkdir -p "$build/bench"
if [ -z "$spec" ]; then
    spec=$build/bench/this-machine.json
    [ -s "$spec" ] || "$build/kiln" probe this-machine -o "$spec"
fi
flags="-std=gnu11 -O2 -Wall -Wextra -Werror -D_GNU_SOURCE -Icompiler -I."
# shellcheck disable=SC2086
gcc $flags -march=native -mprefer-vector-width=512 -ffp-contract=fast -Wno-psabi -c $here/ceiling.c -o "$build/bench/ceiling.o"
# shellcheck disable=SC2086
gcc $flags $here/rank.c $here/own.c api/cli/pool*_posix.c "$build/bench/ceiling.o" "$build/libkiln.a" -lcjson -lm -ldl -lpthread -o "$build/bench/rank"
exec "$build/bench/rank" "${REQUESTS:-$here/rank.jsonl}" "$spec" "${ROUNDS:-25}" "${THREADS:-1}" ${ALL:+all}
