#!/bin/sh
# Models of the fuzz corpus, and the node tests where they are at hand, are read as protobuf-c reads them.
cd "$(dirname "$0")/../.." || exit 2
build=${KILN_BUILD:-build}
[ -x "$build/onnx-oracle" ] || { echo "protoc-c is not installed"; exit 77; }
exec "$build/onnx-oracle" tests/fuzz/corpus/fuzz_onnx/*.onnx $(ls "$build"/onnx-node-tests/*/model.onnx 2>/dev/null)
