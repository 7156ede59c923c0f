#!/bin/sh
# Does it matter which loops feed an instruction? Every mapping of the twelve convolutions of ResNet-18, measured here. usage: bench.sh BUILD
cd "$(dirname "$0")/../.." || exit 2
build=${1:-build}
grep -qw avx512_vnni /proc/cpuinfo && python3 load-tests/mappings/layers.py "$build" x86-64-vnni vpdpbusd,vpdpbusd_bcst
if grep -qw amx_bf16 /proc/cpuinfo; then # of hundreds of mappings those that were ahead
    MAPPINGS="k|q|c,q|k|c,k|pq|c,pq|k|c,k|pq|crs,q|k|crs" python3 load-tests/mappings/layers.py "$build" x86-64-amx amx_bf16
fi
exec python3 load-tests/mappings/layers.py "$build" x86-64-avx2 fma_f32
