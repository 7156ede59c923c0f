"""What people hand to torch.compile, forward and backward, through the backend against eager PyTorch (1e-4), and what of it stayed in PyTorch, which has
to be said. Usage: torch_breadth.py BUILD [NAME...]; needs the package torch."""
import copy, os, sys, warnings
from serve import Serving
import torch
import torch.nn as nn
import torch.nn.functional as F
import kiln.torch as backend

torch._dynamo.config.allow_rnn = True  # else PyTorch runs GRU and LSTM itself and asks no backend

CASES = {}


def case(*stays, train=True, calls=None):
    """A case: a function that gives (module or function, arguments). stays: operators that are PyTorch's own here, parts of their names; train: gradients
    are compared as well."""
    def add(f):
        CASES[f.__name__] = (f, stays, train, calls)
        return f
    return add


def par(*shape):
    return nn.Parameter(torch.randn(*shape) * 0.3)


class Of(nn.Module):
    def __init__(self, forward, **modules):
        super().__init__()
        self.f = forward
        for name, m in modules.items():
            setattr(self, name, m)

    def forward(self, *x):
        return self.f(self, *x)


@case()
def gru():
    return Of(lambda m, x: m.r(x)[0].sum(1), r=nn.GRU(6, 8, batch_first=True)), (torch.randn(2, 5, 6),)


@case("mkldnn_rnn_layer", train=False)
def lstm():
    """Forward alone: with gradients PyTorch's own aot_eager fails for two layers, too."""
    return Of(lambda m, x: torch.cat(m.r(x)[1], -1), r=nn.LSTM(6, 8, 2, batch_first=True, bidirectional=True)), (torch.randn(2, 4, 6),)


@case("_embedding_bag")
def embedding_bag():
    return Of(lambda m, x, y: m.f2(F.relu(m.e(x)) * y), e=nn.EmbeddingBag(20, 8, mode="mean"), f2=nn.Linear(8, 3)), (torch.randint(0, 20, (4, 3)), torch.randn(4, 8))


@case()
def embedding():
    """The gradient of a table is a scatter."""
    return Of(lambda m, x: torch.tanh(m.e(x)) * 2, e=nn.Embedding(20, 8, padding_idx=0)), (torch.randint(0, 20, (4, 3)),)


@case()
def conv_transpose():
    return Of(lambda m, x: torch.sigmoid(m.b(F.relu(m.a(x)))), a=nn.Conv2d(3, 8, 3, 2, 1), b=nn.ConvTranspose2d(8, 4, 4, 2, 1, groups=2)), (torch.randn(2, 3, 10, 8),)


@case()
def norms():
    return Of(lambda m, x: m.i(F.silu(m.g(x))) + m.l(x), g=nn.GroupNorm(2, 6), i=nn.InstanceNorm2d(6, affine=True), l=nn.LayerNorm([6, 5, 4])), (torch.randn(2, 6, 5, 4),)


@case()
def batch_norm_train():
    m = nn.Sequential(nn.Conv1d(3, 6, 3), nn.BatchNorm1d(6), nn.LeakyReLU(0.1), nn.Conv1d(6, 4, 3), nn.BatchNorm1d(4, affine=False), nn.ELU())
    return m, (torch.randn(3, 3, 12),)


@case()
def masked_attention():
    def f(m, x, mask):
        q, k, v = (t.view(2, 6, 2, 8).transpose(1, 2) for t in m.q(x).chunk(3, -1))
        w = (q @ k.transpose(-1, -2) / 8 ** 0.5).masked_fill(~mask[:, None, None], float("-inf"))
        w = w.masked_fill(torch.ones(6, 6, dtype=torch.bool).triu(1), float("-inf"))
        return m.o((w.softmax(-1) @ v).transpose(1, 2).flatten(2))
    mask = torch.ones(2, 6, dtype=torch.bool)
    mask[1, 4:] = False
    return Of(f, q=nn.Linear(16, 48), o=nn.Linear(16, 16)), (torch.randn(2, 6, 16), mask)


@case(train=False)
def kv_cache():
    """A cache that is written in place at a position out of a tensor."""
    def f(m, x, k, v, at):
        k, v = k.clone(), v.clone()
        k[:, :, at] = m.k(x).view(1, 1, 2, 8).transpose(1, 2)
        v.index_copy_(2, at, m.v(x).view(1, 1, 2, 8).transpose(1, 2))
        seen = torch.arange(k.shape[2]) <= at
        q = m.q(x).view(1, 1, 2, 8).transpose(1, 2)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=seen[None, None, None]), k, v
    return Of(f, q=nn.Linear(16, 16), k=nn.Linear(16, 16), v=nn.Linear(16, 16)), (torch.randn(1, 1, 16), torch.randn(1, 2, 6, 8), torch.randn(1, 2, 6, 8), torch.tensor([3]))


@case()
def attention_module():
    return Of(lambda m, x: m.a(x, x, x)[0], a=nn.MultiheadAttention(16, 4, batch_first=True)), (torch.randn(2, 5, 16),)


@case()
def scatter_gather():
    def f(m, x, i):
        y = x.gather(1, i) * 2
        z = torch.zeros_like(x).scatter(1, i, y.exp())
        z = z.scatter_add(1, i, y)
        return torch.zeros(3, 7).scatter_reduce(0, i[:3, :7] % 3, z[:3, :7], "amax") + z[:3].sum()
    return Of(f, p=par(1)), (torch.randn(4, 7, requires_grad=True), torch.stack([torch.randperm(7) for _ in range(4)]))


@case()
def index_put():
    def f(m, x, i, v):
        y = x.clone() * 2
        y[i] = v.sin()
        y.index_put_((i, torch.tensor([0, 1, 2])), v[:, 0].cos(), accumulate=True)
        return y.index_add(0, i, v) + x[:, [2, 0, 1, 3]]
    return Of(f), (torch.randn(6, 4, requires_grad=True), torch.tensor([4, 1, 3]), torch.randn(3, 4, requires_grad=True))


@case()
def prefix():
    return Of(lambda m, x: (x.cumsum(1).tanh() * x.sigmoid().cumprod(0)).flip(1)), (torch.randn(4, 6, requires_grad=True),)


@case()
def sorting():
    def f(m, x):
        v, i = (x * 2).topk(3, 1)
        s, _ = torch.sort(x.sin(), 1)
        return v.exp().sum(1) + s[:, 0] * i.float().mean(1) + x.argmax(1)
    return Of(f), (torch.randn(4, 9, requires_grad=True),)


@case()
def einsum():
    return Of(lambda m, x, y: torch.einsum("bhid,bhjd->bhij", x, y).softmax(-1).mean(1) + torch.einsum("bhid,d->bi", x, m.w)[..., None], w=par(6)), (
        torch.randn(2, 3, 4, 6), torch.randn(2, 3, 4, 6))


@case()
def control():
    def f(m, x):
        for i in range(3):
            x = m.a(x) if i % 2 else F.gelu(m.b(x)) + x
        if x.shape[0] > 2:
            x = x * 2
        return x if x.sum() > 0 else x - 1
    return Of(f, a=nn.Linear(6, 6), b=nn.Linear(6, 6)), (torch.randn(3, 6),)


@case(calls=[(3,), (5,), (4,)])
def dynamic():
    return Of(lambda m, x: F.softmax(m.a(x).relu(), 0) * x.shape[0], a=nn.Linear(6, 6)), (torch.randn(3, 6),)


@case("div.Tensor_mode", "remainder.Tensor", train=False)
def integers():
    def f(m, a, b, c):
        return a // b + a % b, (a & b) | (a ^ 3), ~a, a << 2, a >> 1, c & (a > 3), ~c, torch.where(c, a, -b), a.abs().clamp(1, 5), (a * b).sum(), a.float().mean(), torch.div(a, b, rounding_mode="trunc")
    return Of(f), (torch.randint(-20, 20, (4, 5)), torch.randint(1, 6, (4, 5)), torch.rand(4, 5) > 0.5)


@case(train=False)
def comparisons():
    def f(m, x, y):
        return (x > 0) & (y < 0.5) | x.isnan(), (x == y).any(1), (x != y).all(), torch.isinf(y), x.round(), x.trunc(), x.sign(), torch.fmod(x, y), torch.remainder(x, y), x.clamp(-0.5), torch.floor_divide(x, y)
    return Of(f), (torch.randn(4, 5), torch.randn(4, 5))


@case("new_empty_strided")
def in_place():
    def f(m, x):
        y = x * 2
        y[:, 1:3] += 1
        y[0].mul_(3)
        y.view(-1)[::2].neg_()
        y[:, -1] = 0.5
        return y.relu_().t().contiguous().view(3, -1)[1:]
    return Of(f), (torch.randn(4, 6, requires_grad=True),)


@case("diagonal", "as_strided")
def views():
    def f(m, x):
        a = x.unfold(1, 3, 2).sum(-1)
        b = x[:, ::2].flip(0) + x.roll(1, 1)[:, ::2]
        c = torch.stack(x.unbind(0), 1).movedim(0, 1).diagonal()
        d = x.repeat(1, 2).narrow(1, 2, 5).expand(2, -1, -1) + x.repeat_interleave(2, 1)[:, :5]
        return a.sum() + b.sum() + (c * c).sum() + d.tanh().sum() + x.tril().triu(-1).sum(0) + torch.diag_embed(x[0])[0]
    return Of(f), (torch.randn(4, 6, requires_grad=True),)


@case("empty", "replication_pad2d_backward")
def pads():
    def f(m, x):
        return (F.pad(x, (1, 2, 0, 1), value=0.5).sum() + F.pad(x, (1, 1, 2, 1), mode="reflect").sin().sum(1) + F.pad(x, (1, 1, 0, 0), mode="replicate").sum(1)[:, :1]
                + F.pad(x, (2, 1, 0, 0), mode="circular").mean())
    return Of(f), (torch.randn(2, 3, 5, 6, requires_grad=True),)


@case("adaptive_max_pool2d", "_adaptive_avg_pool2d_backward")
def pools():
    def f(m, x):
        return (F.max_pool2d(x, 3, 2, 1).sum() + F.avg_pool2d(x, 2).tanh().sum() + F.adaptive_avg_pool2d(x, (3, 2)).sum(1) * 2 + F.adaptive_max_pool2d(x, 1).sum()
                + F.max_pool1d(x[0], 2).sum() + F.avg_pool1d(x[0], 2).sum())
    return Of(f), (torch.randn(2, 3, 8, 9, requires_grad=True),)


@case()
def resize():
    return Of(lambda m, x: F.interpolate(x, scale_factor=2, mode="nearest") * 2 + F.interpolate(x, size=(8, 10), mode="bilinear", align_corners=False) +
              F.pixel_shuffle(x.repeat(1, 4, 1, 1), 2)), (torch.randn(2, 3, 4, 5, requires_grad=True),)


@case("erfc")
def activations():
    def f(m, x):
        y = [F.leaky_relu(x, 0.2), F.elu(x), F.selu(x), F.celu(x), F.softplus(x), F.mish(x), F.hardswish(x), F.hardsigmoid(x), F.hardtanh(x), F.relu6(x), F.gelu(x, approximate="tanh"),
             F.logsigmoid(x), F.softsign(x), F.tanhshrink(x), F.glu(x), F.prelu(x, m.w), x.log1p().nan_to_num(), torch.expm1(x), x.atan(), x.asinh(), torch.hypot(x, x + 1),
             torch.logsumexp(x, 1), x.var(1), x.std(0), x.norm(dim=1), x.prod(1), F.normalize(x), F.cosine_similarity(x, x + 1), torch.lerp(x, x * 2, 0.3), torch.addcmul(x, x, x, value=0.5),
             x.square().mean().sqrt(), torch.xlogy(x.abs(), x.abs() + 1), x.sinh().clamp(max=2), torch.erfc(x), x.tan().clamp(-3, 3), x.log2().nan_to_num(), x.exp2(), x.abs().pow(1.5)]
        return sum(t.sum() for t in y)
    return Of(f, w=par(1)), (torch.randn(4, 6, requires_grad=True),)


@case()
def losses():
    def f(m, x, t):
        y = m.a(x)
        return (F.cross_entropy(y, t) + F.cross_entropy(y, t, label_smoothing=0.1, weight=torch.arange(1.0, 6.0)) + F.mse_loss(y, torch.ones_like(y)) + F.smooth_l1_loss(y, torch.zeros_like(y))
                + F.binary_cross_entropy_with_logits(y, (y > 0).float()) + F.kl_div(y.log_softmax(1), y.softmax(1).detach(), reduction="batchmean") + F.huber_loss(y, y * 0)
                + F.nll_loss(y.log_softmax(1), t, ignore_index=2) + F.l1_loss(y, y * 0 + 3))
    return Of(f, a=nn.Linear(6, 5)), (torch.randn(7, 6), torch.randint(0, 5, (7,)))


@case()
def checkpointed():
    from torch.utils.checkpoint import checkpoint
    return Of(lambda m, x: checkpoint(lambda t: torch.tanh(m.a(t)) * m.b(t), x, use_reentrant=False).sum(1), a=nn.Linear(6, 6), b=nn.Linear(6, 6)), (torch.randn(3, 6, requires_grad=True),)


@case()
def depthwise_blocks():
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.Hardswish(), nn.Conv2d(8, 8, 5, 2, 2, groups=8), nn.BatchNorm2d(8), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(8, 4)), (torch.randn(2, 3, 12, 12),)


@case("_assert_async", "empty_permuted", train=False)
def made_tensors():
    def f(m, x):
        n = x.shape[1]
        pos = torch.arange(n, dtype=torch.float32)[None] * torch.linspace(0, 1, n)
        return x + pos + torch.eye(n)[:4] + torch.full_like(x, 2.0) + torch.zeros(4, 1) + x.new_ones(4, n), F.one_hot(torch.arange(4), n), torch.tril(torch.ones(n, n)), torch.empty_like(x).fill_(3.0) * x
    return Of(f), (torch.randn(4, 6),)


@case("_cdist")
def distances():
    return Of(lambda m, x, y: torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist").sum(1) + (x[:, None] - y[None]).abs().sum((1, 2)) + torch.baddbmm(x[None], x[None], y[None, :3] .transpose(1, 2) @ y[None, :3]).sum() + torch.outer(x[0], y[0]).sum()), (
        torch.randn(4, 6, requires_grad=True), torch.randn(5, 6, requires_grad=True))


@case("native_dropout")
def dropout():
    """The same seed before both: the numbers are PyTorch's own."""
    return Of(lambda m, x: m.b(F.dropout(F.relu(m.a(x)), 0.4, m.training)), a=nn.Linear(6, 20), b=nn.Linear(20, 4)), (torch.randn(5, 6),)


@case()
def autocast():
    """Products of halves; compared at their precision."""
    def f(m, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return m.b(F.gelu(m.a(x))).float().softmax(-1)
    return Of(f, a=nn.Linear(16, 32), b=nn.Linear(32, 8)), (torch.randn(5, 16),)


@case()
def optimiser():
    """The step itself: moments, their corrections, decay."""
    def f(m, p, g, a, b):
        a, b = torch.lerp(a, g, 0.1), b * 0.99 + g * g * 0.01
        step = (a / (1 - 0.9 ** 3)) / ((b / (1 - 0.99 ** 3)).sqrt() + 1e-8)
        return p * (1 - 1e-3 * 0.01) - 1e-3 * step, a, b
    return Of(f), tuple(torch.randn(6, 7, requires_grad=True) for _ in range(3)) + (torch.rand(6, 7) + 0.5,)


TOLERANCE = {"autocast": 2e-2}


def near(a, b):
    if a.dtype != b.dtype or a.shape != b.shape or a.isnan().ne(b.isnan()).any():
        return float("inf")
    a, b = a.detach().double().nan_to_num(), b.detach().double().nan_to_num()
    return float((a - b).abs().max() / b.abs().max().clamp_min(1.0)) if a.numel() else 0.0


def flat(y):
    return [y] if isinstance(y, torch.Tensor) else [t for t in y if t is not None]


def step(f, parameters, args, train):
    """Outputs, and gradients of their sum of squares by the parameters and by the arguments that want them."""
    outs = flat(f(*args))
    if not train:
        return [t.detach() for t in outs]
    loss = sum(t.square().sum() for t in outs if t.dtype.is_floating_point and t.requires_grad)
    wanted = [p for p in list(parameters) + list(args) if p.requires_grad]
    return outs + [g for g in torch.autograd.grad(loss, wanted, allow_unused=True) if g is not None]


def try_one(name):
    make, stays, train, calls = CASES[name]
    torch.manual_seed(1)
    torch._dynamo.reset()
    backend.parts.clear()
    backend.left.clear()
    module, args = make()
    module.train(train)
    other = copy.deepcopy(module)
    compiled = torch.compile(other, backend=backend.backend)
    worst = 0.0
    for extent in calls or [None]:
        if extent:
            args = (torch.randn(*extent, *args[0].shape[1:]),) + args[1:]
        with torch.enable_grad() if train else torch.no_grad():
            torch.manual_seed(5)
            want = step(module, module.parameters(), args, train)
            torch.manual_seed(5)
            got = step(compiled, other.parameters(), args, train)
        worst = max([worst] + [near(a, b) for a, b in zip(got, want)]) if len(got) == len(want) else float("inf")
    here = sum(p.state == "kiln" for p in backend.parts)
    strange = [t for t in backend.left if not any(s in t for s in stays)]
    bad = [p.why for p in backend.parts if p.state != "kiln"]
    good = worst <= TOLERANCE.get(name, 1e-4) and here and not bad and not strange
    print(f"{name:20} {worst:8.1e} {here:3} parts  {'' if good else 'FAIL '}{'; '.join(bad)[:300]} {' '.join(f'{t}({w})' if w else t for t, w in sorted(backend.left.items()))}", flush=True)
    return good


def main():
    with Serving(sys.argv[1]) as service:
        os.environ.update(KILN_URL=service.url, KILN_CACHE=service.work + "/torch", KILN_WAIT="300", KILN_REFRESH="0")
        names, failed = sys.argv[2:] or list(CASES), []
        for name in names:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    good = try_one(name)
            except Exception as e:
                good = False
                print(f"{name:20} FAIL {type(e).__name__}: {str(e).strip()[:400]}", flush=True)
            if not good:
                failed.append(name)
    print(f"{len(names) - len(failed)} passed, {len(failed)} failed {' '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
