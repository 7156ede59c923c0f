"""A model from the command line and from C: kiln plan, compile to a folder, run, bench; a program that links libkiln-client through pkg-config; folders
that were damaged. Usage: model_cli.py [BUILD]"""
import json, os, re, shutil, subprocess, sys, tempfile
sys.path.append("tests")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import npy
from service import Checks, Service

build = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build")
work = tempfile.mkdtemp()
check = Checks()


def pictures(model, folder):
    """kiln graph: table, reasons, the settled nodes, pictures; of a folder with its own times."""
    rc, out, err = service.kiln("graph", model, "-o", work + "/g.svg")
    check("graph", rc == 0 and "predicted" in out and "not one kernel, because" in out and "saves us" in out, out + err)
    import xml.dom.minidom
    boxes = xml.dom.minidom.parse(work + "/g.svg").getElementsByTagName("rect").length
    rc, out, err = service.kiln("graph", model, "--json")
    seen = json.loads(out)
    check("graph --json", boxes == len(seen["steps"]) + 3 and all(e["from"] < e["to"] for e in seen["edges"]), f"{boxes} boxes")
    check("an edge says why", any(e["why_apart"] for e in seen["edges"]) and sum(s["saves_us"] for s in seen["steps"]) > 0)
    rc, out, err = service.kiln("graph", model, "-o", work + "/g.dot")
    check("dot", rc == 0 and open(work + "/g.dot").read().count("->") == len(seen["edges"]))
    rc, out, err = service.kiln("graph", model, "-o", work + "/g.png")
    check("another picture is refused", rc == 64 and "F.svg" in err, err)
    check("nodes", "= Conv(" in service.kiln("graph", model, "--as", "nodes")[1])
    rc, out, err = service.kiln("graph", folder, "-o", work + "/m.svg")
    check("measured", rc == 0 and "us measured" in out and "measured;" in open(work + "/m.svg").read(), out + err)


PROGRAM = r"""
#include <kiln_client.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    kiln_client_error e = {0};
    kiln_model *m = kiln_model_open(argv[1], &e);
    if (!m) { printf("%s\n", e.message); return 2; }
    struct kiln_pool *pool = kiln_pool_open(argc > 2 ? 2 : 1);
    const void *in[8];
    void *out[8];
    for (int i = 0; i < kiln_model_inputs(m); i++) in[i] = calloc(1, (size_t)kiln_model_input(m, i)->bytes);
    for (int i = 0; i < kiln_model_outputs(m); i++) out[i] = malloc((size_t)kiln_model_output(m, i)->bytes);
    int rc = kiln_model_run(m, in, out, pool, &e);
    double sum = 0;
    for (int i = 0; i < kiln_model_output(m, 0)->bytes / 4; i++) sum += ((float *)out[0])[i];
    printf("%d %.5f\n", rc, sum);
    kiln_pool_close(pool);
    kiln_model_close(m);
    return rc;
}
"""

service = Service(build)
try:
    with open("tests/data/small_cnn.json") as f:
        data = json.load(f)
    folder = work + "/cnn"
    rc, out, err = service.kiln("plan", "tests/data/small_cnn.onnx")
    check("plan", rc == 0 and re.search(r"Conv \S+, .*Relu", out) and "arena" in out, out + err)
    rc, out, err = service.kiln("compile", "tests/data/small_cnn.onnx")
    check("compile wants a folder", rc == 64 and "-o DIR" in err, err)
    rc, out, err = service.kiln("compile", "tests/data/small_cnn.onnx", "-o", folder)
    check("compile", rc == 0 and "distinct" in out and os.path.exists(folder + "/model.json"), out + err)
    rc, out, err = service.kiln("compile", "tests/data/small_cnn.onnx", "-o", folder)
    check("compile again", rc == 0 and re.search(r"(\d+) distinct, \1 from the cache", out), out + err)
    rc, out, err = service.kiln("compile", "tests/data/small_cnn.json", "-o", folder + "x")
    check("not a model", rc != 0, out)
    rc, out, err = service.kiln("compile", "tests/data/small_cnn.onnx", "-o", work + "/none/cnn", "--url", "http://127.0.0.1:1")
    check("a folder that cannot be made is said before anything is asked for", rc == 73 and "cannot be made" in err, err)
    with open(work + "/broken.onnx", "wb") as f:
        f.write(b"\xff" * 100)
    rc, out, err = service.kiln("compile", work + "/broken.onnx", "-o", folder + "x")
    check("a broken model says so", rc == 65 and not os.path.exists(folder + "x"), err)

    npy.write(work + "/x.npy", data["inputs"]["x"], [1, 3, 16, 16])
    for threads in ("1", "2"):
        rc, out, err = service.kiln("run", folder, "--input", f"x={work}/x.npy", "-o", work + "/y.npy", "--threads", threads)
        check("run", rc == 0, out + err)
        shape, y = npy.read(work + "/y.npy")
        check("first output", shape == (1, 10) and max(abs(a - b) for a, b in zip(y, data["outputs"]["y"])) < 1e-5, y)
        shape, y = npy.read(work + "/y.1.npy")
        check("second output", shape == (1, 16, 8, 8) and max(abs(a - b) for a, b in zip(y, data["outputs"]["features"])) < 1e-4, shape)
    check("an input of another name", service.kiln("run", folder, "--input", f"z={work}/x.npy")[0] == 64)
    npy.write(work + "/wrong.npy", [0.0] * 4, [2, 2])
    rc, out, err = service.kiln("run", folder, "--input", f"x={work}/wrong.npy")
    check("an input of another shape", rc == 65 and "f32 of shape (2, 2) in C order with 16 bytes" in err and "(1, 3, 16, 16)" in err, err)
    with open(work + "/x.npy", "rb") as f:
        whole = f.read()
    for name, bytes_ in (("dtype", whole.replace(b"<f4", b"<f8")), ("order", whole.replace(b"'fortran_order': False", b"'fortran_order': True ")),
                         ("length", whole[:-4]), ("kind", b"not an array at all")):
        with open(work + "/odd.npy", "wb") as f:
            f.write(bytes_)
        rc, out, err = service.kiln("run", folder, "--input", f"{work}/odd.npy")
        check("an input of another " + name, rc == 65 and "odd.npy" in err and ("no .npy" if name == "kind" else "x needs f32") in err, err)
    rc, out, err = service.kiln("run", folder, "--input", work + "/nowhere.npy")
    check("an input that is not there", rc in (65, 66) and "nowhere.npy" in err, err)
    pictures("tests/data/small_cnn.onnx", folder)
    rc, out, err = service.kiln("bench", folder, "--runs", "3")
    check("bench", rc == 0 and "GFLOP/s" in out and "median of 3 runs" in out, out + err)
    rc, out, err = service.kiln("bench", folder, "--runs", "3", "--json")
    check("bench as JSON", rc == 0 and len(json.loads(out)["steps_us"]) > 5, out + err)
    check("bench wants a folder", service.kiln("bench", work)[0] == 64)

    # Beside onnxruntime: with a Python that has it where there is one (KILN_PYTHON, ONNX, python3), and what is said where it is not.
    def against(python, *args):
        return service.kiln("bench", *args, "--runs", "3", env={"KILN_PYTHON": python})
    empty = work + "/empty"
    with open(empty, "w") as f:
        f.write('#!/bin/sh\nexec python3 -I -S "$@"\n')
    os.chmod(empty, 0o755)
    for python in (empty, work + "/nowhere"):
        rc, out, err = against(python, folder, "--against", "onnxruntime")
        check("no onnxruntime: " + python, rc == 69 and not out and "KILN_PYTHON" in err and "pip install onnxruntime" in err, out + err)
    check("no such runtime", against("python3", folder, "--against", "nothing")[0] == 64)
    rc, out, err = against("python3", folder, "tests/data/small_block.onnx", "--against", "onnxruntime")
    check("another model", rc == 65 and "is not the model" in err, out + err)
    rc, out, err = against("python3", folder, work + "/gone.onnx", "--against", "onnxruntime")
    check("a model that is not there", rc == 66 and "where is the model" in err, out + err)
    check("a model without a peer", against("python3", folder, "tests/data/small_cnn.onnx")[0] == 64)
    pythons = [p for p in (os.environ.get("KILN_PYTHON"), os.environ.get("ONNX"), "python3") if p]
    has = [p for p in pythons if subprocess.run([p, "-c", "import onnxruntime"], capture_output=True).returncode == 0]
    if has:
        rc, out, err = against(has[0], folder, "--against", "onnxruntime")
        check("against onnxruntime", rc == 0 and re.search(r"median of onnxruntime \d\S* in turns with it: [0-9.]+ times as long", out), out + err)
        rc, out, err = against(has[0], folder, "tests/data/small_cnn.onnx", "--against", "onnxruntime", "--threads", "2", "--json")
        seen = json.loads(out or "{}").get("against", {})
        check("against onnxruntime as JSON", rc == 0 and seen["median_us"] > 0 and seen["ratio"] > 0 and seen["difference"] < 1e-5, out + err)
    else:
        print("# no Python with onnxruntime: kiln bench --against only refuses here")

    prefix = work + "/prefix"
    subprocess.run(["make", "-s", "install-client", f"B={os.path.relpath(build)}", f"PREFIX={prefix}"], check=True, capture_output=True, timeout=300)
    with open(work + "/program.c", "w") as f:
        f.write(PROGRAM)
    env = {**os.environ, "PKG_CONFIG_PATH": prefix + "/lib/pkgconfig", "LD_LIBRARY_PATH": prefix + "/lib"}
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "kiln-client"], capture_output=True, text=True, env=env, check=True).stdout.split()
    subprocess.run([os.environ.get("CC", "cc").split()[-1], "-std=c11", "-Wall", "-Wextra", "-Werror", "-o", work + "/program", work + "/program.c", *flags], check=True, env=env)
    seen = [subprocess.run([work + "/program", folder, *more], capture_output=True, text=True, env=env) for more in ([], ["2"])]
    check("the C client", all(r.returncode == 0 and re.fullmatch(r"0 1\.0000\d\s*|0 0\.9999\d\s*", r.stdout) for r in seen), [r.stdout for r in seen])

    def damaged(name, change):
        copy = work + "/copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder, copy)
        with open(copy + "/" + name, "r+b") as f:
            text = f.read()
            f.seek(0)
            f.truncate()
            f.write(change(text))
        return subprocess.run([work + "/program", copy], capture_output=True, text=True, env=env)
    for name in ("entry.so", "kernels/0.so", "weights.bin"):
        r = damaged(name, lambda t: t[:-1] + bytes([t[-1] ^ 1]))
        check("damaged " + name, r.returncode == 2 and "SHA-256" in r.stdout, r.stdout)
    for change in (lambda t: b"{", lambda t: t.replace(b'"kiln_abi":\t1', b'"kiln_abi":\t2'), lambda t: t.replace(b'"arena",', b'"nowhere",'),
                   lambda t: t.replace(b'"weights.bin"', b'"weights.bim"'), lambda t: t.replace(b'"avx2"', b'"avx9"').replace(b'"avx512f"', b'"avx999f"')):
        r = damaged("model.json", change)
        check("damaged model.json", r.returncode == 2 and r.stdout.strip(), (r.returncode, r.stdout))
finally:
    service.stop()
    shutil.rmtree(work, ignore_errors=True)
sys.exit(check.end())
