#!/bin/sh
# The bench of operators in short: some of its cases, two rounds, outputs compared, no thresholds on time. Where a Python with onnxruntime and torch is
# at hand (PYTHON, or what `make bench-operators` brought into the build folder).
set -eu
cd "$(dirname "$0")/../.."
build=${KILN_BUILD:-build}
python=${PYTHON:-$build/venv/bin/python}
"$python" -c 'import onnx, onnxruntime, torch, numpy' 2>/dev/null || { echo "no onnxruntime and torch: make bench-operators brings them"; exit 77; }
for some in concat softmax convT "gradient: conv 64x56" resize; do
    out=$("$python" load-tests/operators/bench_operators.py "$build" --rounds 2 --only "$some") || { printf '%s\n' "$out"; exit 1; }
    printf '# %s: %s\n' "$some" "$(printf '%s\n' "$out" | tail -n 1)"
done
