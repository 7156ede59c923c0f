"""torch.compile with the backend against eager PyTorch: forward and training steps of a small CNN and of a transformer block, and bad days.
Usage: torch_backend.py BUILD; needs the package torch."""
import os, shutil, subprocess, sys, tempfile, time, unittest, warnings
sys.path.append("tests")
from free_port import free_port

build = sys.argv.pop(1)
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "api", "python"))
work = tempfile.mkdtemp()
port = free_port()
os.environ["KILN_URL"] = f"http://127.0.0.1:{port}"
os.environ["KILN_CACHE"] = work + "/cache"
os.environ["KILN_WAIT"] = "120"
os.environ["KILN_REFRESH"] = "1"
library = os.path.abspath(os.path.join(build, "libkiln-client.so"))
if os.path.exists(library):
    os.environ["KILN_CLIENT_LIB"] = library
import torch
import torch.nn as nn
import kiln
import kiln.torch as backend

daemon = None


def start():
    global daemon
    daemon = subprocess.Popen([build + "/kilnd", "--listen", f"127.0.0.1:{port}", "--data", work + "/data", "--hwspecs", "hwspecs"], stderr=open(work + "/log", "a"))
    for _ in range(200):
        try:
            kiln.Client().transport.call("GET", "/readyz")
            return
        except kiln.Error:
            time.sleep(0.1)


class CNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.n, self.b, self.f = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Linear(8, 10)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.n(self.a(x))), 2)
        return self.f((torch.sigmoid(self.b(x)) + x).mean((2, 3)))


class Block(nn.Module):
    def __init__(self, d=32, h=4):
        super().__init__()
        self.h, self.n, self.m = h, nn.LayerNorm(d), nn.LayerNorm(d)
        self.q, self.o, self.f, self.g = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x):
        b, s, d = x.shape
        q, k, v = (t.view(b, s, self.h, d // self.h).transpose(1, 2) for t in self.q(self.n(x)).chunk(3, -1))
        p = torch.softmax(q @ k.transpose(-1, -2) / (d // self.h) ** 0.5, -1)
        x = x + self.o((p @ v).transpose(1, 2).reshape(b, s, d))
        return x + self.g(nn.functional.gelu(self.f(self.m(x))))


def near(a, b):
    return float((a - b).abs().max() / b.abs().max().clamp_min(1e-6))


class Backend(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(3)
        torch._dynamo.reset()
        backend.parts.clear()

    def forward(self, model, x):
        model.eval()
        with torch.no_grad():
            want = model(x)
            compiled = torch.compile(model, backend="kiln" if registered else backend.backend)
            for _ in range(2):
                self.assertLess(near(compiled(x), want), 1e-4)
        self.assertTrue(backend.parts)
        self.assertEqual({p.state for p in backend.parts}, {"kiln"})

    def train(self, make, x):
        """Three steps of descent side by side."""
        plain, other = make().train(), make().train()
        other.load_state_dict(plain.state_dict())
        compiled = torch.compile(other, backend=backend.backend)
        for m, f in ((plain, plain), (other, compiled)):
            opt = torch.optim.SGD(m.parameters(), lr=0.05)
            for _ in range(3):
                opt.zero_grad()
                f(x).square().mean().backward()
                opt.step()
        for (name, a), (_, b) in zip(other.named_parameters(), plain.named_parameters()):
            self.assertLess(float((a - b).abs().max()), 1e-4 * max(1.0, float(b.abs().max())), name)
            if float(b.grad.abs().max()) > 1e-6:
                self.assertLess(near(a.grad, b.grad), 1e-4, name)
        for (name, a), (_, b) in zip(other.named_buffers(), plain.named_buffers()):
            self.assertLess(near(a.double(), b.double()), 1e-4, name)
        self.assertGreater(sum(p.state == "kiln" for p in backend.parts), 1)
        self.assertEqual({p.state for p in backend.parts}, {"kiln"})

    def test_cnn(self):
        self.forward(CNN(), torch.randn(2, 3, 16, 16))

    def test_block(self):
        self.forward(Block(), torch.randn(2, 12, 32))

    def test_train_cnn(self):
        self.train(CNN, torch.randn(2, 3, 16, 16))

    def test_train_block(self):
        self.train(Block, torch.randn(2, 12, 32))

    def test_gradients_of_attention(self):
        """PyTorch's own operator, with a mask and without: its backward reads what its decomposition does not give."""
        mask = torch.ones(12, 12, dtype=torch.bool).tril()
        for f in (lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v),
                  lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)):
            torch._dynamo.reset()
            xs = [torch.randn(2, 2, 12, 16, requires_grad=True) for _ in range(3)]
            want = torch.autograd.grad(f(*xs).square().mean(), xs)
            got = torch.autograd.grad(torch.compile(f, backend=backend.backend)(*xs).square().mean(), xs)
            for a, b in zip(got, want):
                self.assertLess(float((a - b).abs().max() / b.abs().max()), 1e-4)

    def test_gradients_of_convolutions(self):
        """Strides that leave a rest, dilation, groups, one to three dimensions: everything in Kiln, nothing in PyTorch."""
        cases = [(nn.Conv2d(4, 6, 3, stride=2, padding=1), (2, 4, 9, 12)), (nn.Conv2d(4, 8, 3, dilation=2, groups=2, bias=False), (3, 4, 9, 8)),
                 (nn.Conv2d(6, 6, 3, padding=1, groups=6), (2, 6, 7, 5)), (nn.Conv1d(3, 5, 4, stride=3), (2, 3, 15)), (nn.Conv3d(2, 3, 2, stride=2), (1, 2, 5, 4, 6)),
                 (nn.ConvTranspose2d(4, 3, 3, stride=2, output_padding=1), (2, 4, 5, 4))]
        for conv, shape in cases:
            torch._dynamo.reset()
            backend.parts.clear()
            x = torch.randn(shape, requires_grad=True)
            y = x.detach().clone().requires_grad_()
            f = torch.compile(lambda t: torch.tanh(conv(t)) * 2.0, backend=backend.backend)
            (torch.tanh(conv(x)) * 2.0).square().sum().backward()
            want = [x.grad] + [p.grad.clone() for p in conv.parameters()]
            conv.zero_grad()
            f(y).square().sum().backward()
            for a, b in zip([y.grad] + [p.grad for p in conv.parameters()], want):
                self.assertLess(near(a, b), 1e-4, conv)
            self.assertEqual({p.state for p in backend.parts}, {"kiln"}, conv)
            backward = [str(n.target) for p in backend.parts for n in p.eager.graph.nodes if "convolution_backward" in str(n.target)]
            self.assertEqual(len(backward), 1, conv)

    def test_shapes_that_change(self):
        """As PyTorch does by itself at the second shape, and when it is told to; forward and backward, each set of shapes compiled for itself."""
        for dynamic in (None, True):
            torch._dynamo.reset()
            backend.parts.clear()
            f = torch.compile(lambda x, w: torch.tanh(x @ w) * x.shape[0] + 1.0, backend=backend.backend, dynamic=dynamic)
            for n in (5, 6, 8, 6, 5):
                x, w = torch.randn(n, 7), torch.randn(7, 4, requires_grad=True)
                got, want = f(x, w), torch.tanh(x @ w) * n + 1.0
                self.assertLess(near(got, want), 1e-4)
                g, = torch.autograd.grad(got.sum(), w)
                self.assertLess(near(g, torch.autograd.grad(want.sum(), w)[0]), 1e-4)
            self.assertGreaterEqual(len(backend.parts), 3)
            self.assertEqual({p.state for p in backend.parts}, {"kiln"}, [p.why for p in backend.parts])

    def test_more_shapes_than_one_compiles_for(self):
        os.environ["KILN_SHAPES"] = "1"
        f = torch.compile(lambda x: torch.tanh(x) * 2.0, backend=backend.backend, dynamic=True)
        try:
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                for n in (5, 6, 8):
                    x = torch.randn(n, 7)
                    self.assertLess(near(f(x), torch.tanh(x) * 2.0), 1e-5)
            self.assertEqual(sum("KILN_SHAPES" in str(w.message) for w in said), 1)
        finally:
            del os.environ["KILN_SHAPES"]

    def test_a_newer_version_is_taken_while_the_program_runs(self):
        f = torch.compile(lambda x: torch.exp(x) * 1.5 + 0.25, backend=backend.backend)
        x = torch.randn(50)
        f(x)
        old = backend.parts[-1].model
        old._kernels[0].build = "kb1-older"
        for _ in range(100):
            if backend.parts[-1].model is not old:
                break
            time.sleep(0.1)
        self.assertIsNot(backend.parts[-1].model, old)
        self.assertLess(near(f(x), torch.exp(x) * 1.5 + 0.25), 1e-5)

    def test_service_away(self):
        """Eager results, a word about it, and kernels once the service is back."""
        daemon.terminate()
        daemon.wait()
        f = torch.compile(lambda x, y: torch.tanh(x @ y) * 3.25 + 1.0, backend=backend.backend)
        x, y = torch.randn(7, 9), torch.randn(9, 5)
        try:
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                self.assertTrue(torch.allclose(f(x, y), torch.tanh(x @ y) * 3.25 + 1.0))
            self.assertTrue(any(issubclass(w.category, backend.Fallback) for w in said))
            self.assertEqual(backend.parts[-1].state, "waiting")
        finally:
            start()
        for _ in range(200):
            if backend.parts[-1].state == "kiln":
                break
            time.sleep(0.1)
        self.assertEqual(backend.parts[-1].state, "kiln", backend.parts[-1].why)
        self.assertLess(near(f(x, y), torch.tanh(x @ y) * 3.25 + 1.0), 1e-4)

    def test_what_kiln_lacks_runs_in_pytorch(self):
        """And it is said, once an operator."""
        backend.left.clear()
        f = torch.compile(lambda x: torch.erfc(torch.exp(x) * 2.0 + 1.0) * 3.0 + 1.0, backend=backend.backend)
        x = torch.randn(40)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            self.assertLess(near(f(x), torch.erfc(torch.exp(x) * 2 + 1) * 3 + 1), 1e-5)
        self.assertEqual({p.state for p in backend.parts}, {"kiln"})
        self.assertEqual(list(backend.left), ["aten.erfc.default"])
        self.assertEqual(sum("aten.erfc.default" in str(w.message) for w in said if issubclass(w.category, backend.Fallback)), 1)

    def test_a_kernel_that_fails_is_replaced(self):
        f = torch.compile(lambda x: torch.exp(x) * 2.5 + 1.0, backend=backend.backend)
        x = torch.randn(40)
        f(x)
        backend.parts[-1].model._entry = lambda call: 1
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            self.assertTrue(torch.allclose(f(x), torch.exp(x) * 2.5 + 1.0))
        self.assertTrue(any(issubclass(w.category, backend.Fallback) for w in said))
        self.assertEqual(backend.parts[-1].state, "pytorch")


registered = "kiln" in torch._dynamo.list_backends(exclude_tags=())
if __name__ == "__main__":
    start()
    try:
        result = unittest.main(exit=False, verbosity=2, warnings="ignore").result
    finally:
        daemon.terminate()
        daemon.wait()
        shutil.rmtree(work, ignore_errors=True)
    sys.exit(0 if result.wasSuccessful() else 1)
