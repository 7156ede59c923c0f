#!/bin/sh
# The ONNX backend node tests, where a Python with the onnx package is at hand (ONNX, or what `make onnx-nodes` brought into the build folder).
cd "$(dirname "$0")/../.." || exit 2
build=${KILN_BUILD:-build}
[ -n "${ONNX:-}" ] || [ -x "$build/onnx-venv/bin/python" ] || { echo "no onnx package: make onnx-nodes brings it"; exit 77; }
[ -x "$build/onnx-nodes" ] || { echo "make onnx-nodes builds the runner"; exit 77; }
exec tests/golden/onnx_nodes.sh "$build" "$build"
