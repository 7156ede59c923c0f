"""Models that people use, out of the wheels that carry them, through a service: magika says of 200 files what its own program says, silero-vad,
basic-pitch and PP-OCR give what onnxruntime gives. Usage: models.py BUILD WHEELS [NAME...]; WHEELS: what .ci/wheels unpacked. Needs numpy and onnxruntime."""
import glob, os, sys, time, warnings
import numpy as np
import onnxruntime
from serve import Serving, kiln

here = os.path.dirname(os.path.abspath(__file__))
build, wheels, names = sys.argv[1], os.path.abspath(sys.argv[2]), sys.argv[3:]
TOLERANCE = 1e-4


def peer(path):
    o = onnxruntime.SessionOptions()
    o.log_severity_level, o.intra_op_num_threads = 4, 2
    return onnxruntime.InferenceSession(path, o, providers=["CPUExecutionProvider"])


def apart(got, want):
    """Largest difference of one element, by the larger of 1 and the largest element."""
    if got.shape != want.shape or not np.isfinite(got).all():
        return float("inf")
    return float(np.abs(got - want).max() / max(1.0, float(np.abs(want).max())))


def listed(outs):
    return outs if isinstance(outs, list) else [outs]


def same_feed(client, path, feed, **how):
    """(model, largest difference) of one run on arrays."""
    model = client.onnx(path, **how)
    got = listed(model(**feed))
    return model, max(apart(g, w) for g, w in zip(got, peer(path).run(None, feed)))


class Session:
    """What magika asks of onnxruntime, answered by Kiln: a row at a time."""

    def __init__(self, model):
        self.model = model

    def run(self, outputs, feed):
        return [np.concatenate([self.model(np.array([row], np.int32)) for row in feed["bytes"]])]


def some_files(n):
    """Files of as many kinds as this machine has, the same ones every time: a few of every suffix."""
    kinds = {}
    for folder in (os.path.dirname(os.__file__), "/usr/share", "/usr/lib/x86_64-linux-gnu", os.path.join(here, "..", "..")):
        for top, folders, files in os.walk(folder):
            folders[:] = sorted(f for f in folders if f not in ("site-packages", ".git", "build"))[:40]
            for f in sorted(files)[:8]:
                path = os.path.join(top, f)
                if os.path.isfile(path) and not os.path.islink(path) and 64 < os.path.getsize(path) < 4 << 20:
                    kinds.setdefault(os.path.splitext(f)[1], []).append(path)
    turns = [paths[i] for i in range(max(map(len, kinds.values()))) for _, paths in sorted(kinds.items()) if i < len(paths)]
    return turns[:n]


def magika(client):
    sys.path.insert(0, wheels + "/magika")
    from magika import Magika
    program = Magika()
    files = some_files(200)
    want = [program.identify_path(f) for f in files]
    model = client.onnx(glob.glob(wheels + "/magika/magika/models/standard_*/model.onnx")[0])
    program._onnx_session = Session(model)
    got = [program.identify_path(f) for f in files]
    wrong = [(f, g.output.label, w.output.label) for f, g, w in zip(files, got, want) if (g.output.label, g.dl.label) != (w.output.label, w.dl.label)]
    for line in wrong[:5]:
        print("    ", *line)
    worst = max(abs(g.score - w.score) for g, w in zip(got, want))
    labels = len({w.output.label for w in want})
    return model, worst, len(files) >= 200 and not wrong and labels > 20, f"{len(files) - len(wrong)} of {len(files)} files alike, {labels} labels"


def silero(client):
    """Forty windows of tones and noise, each side with its own state."""
    path = wheels + "/silero-vad/silero_vad/data/silero_vad_op18_ifless.onnx"
    model, session, worst, seen = client.onnx(path, bind={"sr": 16000}), peer(path), 0.0, []
    state = mine = np.zeros((2, 1, 128), np.float32)
    t, r = np.arange(64 + 512 * 40) / 16000, np.random.default_rng(1)
    sound = sum(np.sin(2 * np.pi * f * t * (1 + 0.1 * np.sin(7 * t))) / k for k, f in enumerate((140, 280, 420, 700, 1220, 2600), 1))
    sound = (0.3 * sound * (np.sin(2 * np.pi * 2 * t) > 0) + 0.02 * r.standard_normal(t.size)).astype(np.float32)
    for i in range(40):
        x = sound[None, i * 512:i * 512 + 576]
        want, state = session.run(None, {"input": x, "state": state, "sr": np.array(16000, np.int64)})
        got, mine = model(input=x, state=mine)
        worst = max(worst, apart(got, want), apart(mine, state))
        seen.append(float(want[0, 0]))
    return model, worst, True, f"40 windows, speech from {min(seen):.2f} to {max(seen):.2f}"


def basic_pitch(client):
    """Chords over the noise of a room: in digital silence the model takes logarithms of rounding errors, and onnxruntime with its optimisations is 1e-3
    away from itself without them."""
    path = wheels + "/basic-pitch/basic_pitch/saved_models/icassp_2022/nmp.onnx"
    t = np.arange(43844) / 22050
    sound = sum(np.sin(2 * np.pi * f * t) * (np.sin(2 * np.pi * r * t) > 0) for f, r in ((220, 1), (277.18, 2), (329.63, 3), (880, 0.7))) / 4
    sound += 0.02 * np.random.default_rng(0).standard_normal(sound.size)
    model, worst = same_feed(client, path, {"serving_default_input_2:0": sound.astype(np.float32)[None, :, None]})
    return model, worst, True, "two seconds of chords"


def page(h, w):
    """Bars like lines of text on paper, as the detector's own preparation scales them."""
    r, image = np.random.default_rng(2), np.full((3, h, w), 1.0, np.float32)
    for y in range(20, h - 30, 40):
        x = 10
        while x < w - 30:
            n = int(r.integers(4, 14))
            image[:, y:y + 18, x:x + n] = r.random((3, 18, n)) * 0.2
            x += n + int(r.integers(2, 9))
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    return ((image - mean[:, None, None]) / std[:, None, None]).astype(np.float32)[None]


def ocr(file, *shapes):
    def check(client):
        path = wheels + "/rapidocr-onnxruntime/rapidocr_onnxruntime/models/" + file
        model, session, worst = client.onnx(path), peer(path), 0.0
        for h, w in shapes:
            x = page(h, w)
            worst = max([worst] + [apart(g, v) for g, v in zip(listed(model(x=x)), session.run(None, {"x": x}))])
        return model, worst, True, "images of " + ", ".join(f"{h}x{w}" for h, w in shapes)
    return check


def refused(client):
    """A model with an operator that Kiln lacks: refused at its node, and run by onnxruntime when that is wanted, with a word about it."""
    # NonZero(x): its shape depends on data
    node = b"\n\x01x\x12\x01y\"\x07NonZero"
    value = lambda name, dtype, dims: b"\n\x01" + name + b"\x12" + bytes([len(dims) + 6]) + b"\n" + bytes([len(dims) + 4, 8, dtype, 18, len(dims)]) + dims
    field = lambda number, data: bytes([number << 3 | 2, len(data)]) + data
    graph = field(1, node) + field(2, b"g") + field(11, value(b"x", 1, b"\n\x02\x08\x04")) + field(12, value(b"y", 7, b""))
    body = b"\x08\x08" + field(7, graph) + field(8, b"\x10\x0d")
    x = np.array([0, 3, 0, 5], np.float32)
    try:
        client.onnx(body)(x)
        said = ""
    except kiln.ServiceError as e:
        said = e.problem.get("pointer", "") if e.status == 422 else str(e)
    model = client.onnx(body, fallback=True)
    with warnings.catch_warnings(record=True) as words:
        warnings.simplefilter("always")
        got = model(x)
    good = said == "/graph/node/0" and any("NonZero" in str(w.message) for w in words)
    return model, float(np.abs(got - np.array([[1, 3]])).max()), good, f"NonZero at {said}; then in onnxruntime"


CHECKS = {"refused": refused, "magika": magika, "silero-vad": silero, "basic-pitch": basic_pitch, "ppocr-det": ocr("ch_PP-OCRv4_det_infer.onnx", (320, 320), (192, 256)),
          "ppocr-cls": ocr("ch_ppocr_mobile_v2.0_cls_infer.onnx", (48, 192)), "ppocr-rec": ocr("ch_PP-OCRv4_rec_infer.onnx", (48, 320))}
failed = run = 0
with Serving(build) as service:
    print(f"{'model':12}{'shapes':>7}{'steps':>7}{'kernels':>9}{'seconds':>9}  largest difference")
    for name, check in CHECKS.items():
        if names and name not in names:
            continue
        begin, run = time.time(), run + 1
        try:
            model, worst, good, said = check(service.client)
        except kiln.Error as e:
            print(f"{name:12}  FAIL {e}", flush=True)
            failed += 1
            continue
        plans = [m.manifest or {"steps": [], "kernels": []} for m in model.models.values()]
        good = good and worst <= TOLERANCE
        failed += not good
        print(f"{name:12}{len(plans):7}{len(plans[0]['steps']):7}{len(plans[0]['kernels']):9}{time.time() - begin:9.1f}  {worst:.2g} ({said})"
              f"{'' if good else '  FAIL'}", flush=True)
print(f"{run - failed} passed, {failed} failed")
sys.exit(1 if failed or not run else 0)
