#!/bin/sh
# `make bench`: how many schedule primitives a core applies in a second (goal: 20,000).
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build}
gcc -std=c11 -O2 -D_GNU_SOURCE -Icompiler -I. load-tests/schedules/steps.c "$build/libkiln.a" -lcjson -lm -o "$build/bench-steps"
exec "$build/bench-steps"
