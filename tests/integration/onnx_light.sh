#!/bin/sh
# The nine light CNNs of the onnx package: every value of each gets its shape, and what is left are the layers. Models with branches, unknown
# dimensions and bad bytes on the command line. Needs a Python with the onnx package (ONNX, or what `make onnx-nodes` brought).
cd "$(dirname "$0")/../.." || exit 2
build=${KILN_BUILD:-build}
python=${ONNX:-$build/onnx-venv/bin/python}
[ -x "$python" ] || { echo "no onnx package: make onnx-nodes brings it"; exit 77; }
light=$("$python" -c 'import onnx, os; print(os.path.dirname(onnx.__file__))')/backend/test/data/light
failed=0
expect() { # model, layer, how many, type of the output
    text=$("$build/kiln" graph --as nodes "$light/light_$1.onnx") || { echo "FAIL $1"; failed=1; return; }
    n=$(printf '%s\n' "$text" | grep -c " = $2(")
    out=$(printf '%s\n' "$text" | sed -n 's/^out .* //p')
    [ "$n" = "$3" ] && [ "$out" = "$4" ] || { echo "FAIL $1: $n $2 and output $out; $3 and $4 are right"; failed=1; }
}
expect resnet50 Conv 53 'f32[1,1000]'
expect densenet121 Concat 58 'f32[1,1000,1,1]'
expect squeezenet Conv 26 'f32[1,1000,1,1]'
expect shufflenet Transpose 16 'f32[1,1000]'
expect inception_v1 Conv 57 'f32[1,1000]'
expect inception_v2 BatchNormalization 69 'f32[1,1000]'
expect vgg19 Gemm 3 'f32[1,1000]'
expect bvlc_alexnet LRN 2 'f32[1,1000]'
expect zfnet512 Conv 5 'f32[1,1000]'
head -c 1000 "$light/light_resnet50.onnx" >"$build/cut.onnx"
"$build/kiln" graph "$build/cut.onnx" >/dev/null 2>"$build/cut.txt" && { echo "FAIL a model cut short is read"; failed=1; }
grep -q 'no ONNX' "$build/cut.txt" || { echo "FAIL: $(cat "$build/cut.txt")"; failed=1; }
rm -f "$build/cut.onnx" "$build/cut.txt"
exit $failed
