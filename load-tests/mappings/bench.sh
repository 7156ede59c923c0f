#!/bin/sh
# Does it matter which loops feed an instruction? Every mapping of the twelve convolutions of ResNet-18, measured here. usage: bench.sh BUILD
cd "$(dirname "$0")/../.." || exit 2
build=${1:-build}
grep -qw avx512_vnni /proc/cpuinfo && python3 load-tests/mappings/layers.py "$build" x86-64-vnni vpdpbusd,vpdpbusd_bcst
exec python3 load-tests/mappings/layers.py "$build" x86-64-avx2 fma_f32
