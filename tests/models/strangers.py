"""Architectures that people export, small and with random weights, written with PyTorch's own modules. NETS: name -> function that gives
(module, inputs, names of the outputs' kinds that are not compared value by value). Each stands for a family whose export has shapes of its own."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

NETS = {}


def net(f):
    NETS[f.__name__] = f
    return f


class Of(nn.Module):
    """A module of a function and the modules that it uses."""

    def __init__(self, forward, **modules):
        super().__init__()
        self.f = forward
        for name, m in modules.items():
            if isinstance(m, nn.Parameter):
                self.register_parameter(name, m)
            elif isinstance(m, torch.Tensor):
                self.register_buffer(name, m)
            else:
                setattr(self, name, m)

    def forward(self, *x):
        return self.f(self, *x)


def par(*shape):
    return nn.Parameter(torch.randn(*shape) * 0.1)


def heads(x, h):
    b, s, d = x.shape
    return x.view(b, s, h, d // h).transpose(1, 2)


def merged(x):
    b, h, s, d = x.shape
    return x.transpose(1, 2).reshape(b, s, h * d)


def attention_block(d=32, h=4):
    def forward(m, x):
        q, k, v = (heads(t, h) for t in m.qkv(m.n1(x)).chunk(3, -1))
        x = x + m.o(merged(F.scaled_dot_product_attention(q, k, v)))
        return x + m.f2(F.gelu(m.f1(m.n2(x))))
    return Of(forward, n1=nn.LayerNorm(d), n2=nn.LayerNorm(d), qkv=nn.Linear(d, 3 * d), o=nn.Linear(d, d), f1=nn.Linear(d, 4 * d), f2=nn.Linear(4 * d, d))


@net
def vit():
    def forward(m, x):
        x = m.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([m.cls.expand(x.shape[0], -1, -1), x], 1) + m.pos
        return m.head(m.norm(m.blocks(x))[:, 0])
    return Of(forward, patch=nn.Conv2d(3, 32, 8, 8), cls=par(1, 1, 32), pos=par(1, 17, 32), blocks=nn.Sequential(attention_block(), attention_block()),
              norm=nn.LayerNorm(32), head=nn.Linear(32, 10)), (torch.randn(2, 3, 32, 32),)


@net
def swin():
    """Shifted windows: roll, partition, a relative bias that is looked up, a mask, patch merging."""
    w, d, h, side = 4, 24, 3, 8
    at = torch.stack(torch.meshgrid(torch.arange(w), torch.arange(w), indexing="ij")).flatten(1)
    rel = (at[:, :, None] - at[:, None, :]).permute(1, 2, 0) + w - 1
    area = torch.zeros(1, side, side, 1)
    n = 0
    for a in (slice(0, -w), slice(-w, -2), slice(-2, None)):
        for b in (slice(0, -w), slice(-w, -2), slice(-2, None)):
            area[:, a, b] = n
            n += 1

    def windows(x):
        b, hh, ww, c = x.shape
        return x.view(b, hh // w, w, ww // w, w, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, w * w, c)

    area = windows(area)[..., 0]
    mask = (area[:, None, :] != area[:, :, None]).float() * -100.0

    def forward(m, x):
        b = x.shape[0]
        x = m.patch(x).permute(0, 2, 3, 1)
        y = windows(torch.roll(m.n1(x), (-2, -2), (1, 2)))
        q, k, v = m.qkv(y).reshape(-1, w * w, 3, h, d // h).permute(2, 0, 3, 1, 4).unbind(0)
        s = (q * (d // h) ** -0.5) @ k.transpose(-2, -1)
        s = s + m.table[m.rel.view(-1)].view(w * w, w * w, h).permute(2, 0, 1)[None]
        s = (s.view(b, -1, h, w * w, w * w) + m.mask[None, :, None]).view(-1, h, w * w, w * w)
        y = m.o((s.softmax(-1) @ v).transpose(1, 2).reshape(-1, w * w, d))
        y = y.view(b, side // w, side // w, w, w, d).permute(0, 1, 3, 2, 4, 5).reshape(b, side, side, d)
        x = x + torch.roll(y, (2, 2), (1, 2))
        x = torch.cat([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], -1)
        return m.head(m.merge(m.n2(x)).mean((1, 2)))
    return Of(forward, patch=nn.Conv2d(3, d, 4, 4), n1=nn.LayerNorm(d), qkv=nn.Linear(d, 3 * d), o=nn.Linear(d, d), table=par((2 * w - 1) ** 2, h),
              rel=rel[..., 0] * (2 * w - 1) + rel[..., 1], mask=mask, n2=nn.LayerNorm(4 * d), merge=nn.Linear(4 * d, 2 * d, bias=False),
              head=nn.Linear(2 * d, 10)), (torch.randn(2, 3, 32, 32),)


@net
def convnext():
    def block(c):
        def forward(m, x):
            y = m.f2(F.gelu(m.f1(m.n(m.dw(x).permute(0, 2, 3, 1))))) * m.g
            return x + y.permute(0, 3, 1, 2)
        return Of(forward, dw=nn.Conv2d(c, c, 7, padding=3, groups=c), n=nn.LayerNorm(c, eps=1e-6), f1=nn.Linear(c, 4 * c), f2=nn.Linear(4 * c, c), g=par(c))

    def forward(m, x):
        x = m.stem(x).permute(0, 2, 3, 1)
        x = m.b1(m.n(x).permute(0, 3, 1, 2))
        return m.head(m.b2(m.down(x)).mean((-2, -1)))
    return Of(forward, stem=nn.Conv2d(3, 16, 4, 4), n=nn.LayerNorm(16), b1=block(16), down=nn.Conv2d(16, 32, 2, 2), b2=block(32),
              head=nn.Linear(32, 10)), (torch.randn(1, 3, 48, 48),)


@net
def efficientnet():
    def mb(c, o, k, s):
        def forward(m, x):
            y = F.silu(m.b1(m.e(x)))
            y = F.silu(m.b2(m.d(y)))
            y = y * torch.sigmoid(m.s2(F.silu(m.s1(F.adaptive_avg_pool2d(y, 1)))))
            y = m.b3(m.p(y))
            return x + y if c == o and s == 1 else y
        e = 4 * c
        return Of(forward, e=nn.Conv2d(c, e, 1, bias=False), b1=nn.BatchNorm2d(e), d=nn.Conv2d(e, e, k, s, k // 2, groups=e, bias=False), b2=nn.BatchNorm2d(e),
                  s1=nn.Conv2d(e, 4, 1), s2=nn.Conv2d(4, e, 1), p=nn.Conv2d(e, o, 1, bias=False), b3=nn.BatchNorm2d(o))
    return nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.SiLU(), mb(8, 8, 3, 1), mb(8, 16, 5, 2), mb(16, 16, 3, 1),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(16, 10)), (torch.randn(1, 3, 40, 40),)


@net
def unet():
    """Skips of another size than what meets them: padded, as the well-known implementation does."""
    def double(i, o):
        return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(), nn.Conv2d(o, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU())

    def join(up, skip):
        dy, dx = skip.shape[2] - up.shape[2], skip.shape[3] - up.shape[3]
        return torch.cat([skip, F.pad(up, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])], 1)

    def forward(m, x):
        a = m.d1(x)
        b = m.d2(F.max_pool2d(a, 2))
        c = m.d3(F.max_pool2d(b, 2))
        x = m.u2(join(F.interpolate(c, scale_factor=2, mode="bilinear", align_corners=True), b))
        return m.out(m.u1(join(m.t(x), a)))
    return Of(forward, d1=double(3, 8), d2=double(8, 16), d3=double(16, 16), u2=double(32, 16), t=nn.ConvTranspose2d(16, 8, 2, 2), u1=double(16, 8),
              out=nn.Conv2d(8, 2, 1)), (torch.randn(1, 3, 38, 45),)


@net
def lstm_tagger():
    def forward(m, ids):
        y, _ = m.lstm(m.e(ids))
        return m.out(y).log_softmax(-1)
    return Of(forward, e=nn.Embedding(50, 16, padding_idx=0), lstm=nn.LSTM(16, 12, 2, batch_first=True, bidirectional=True),
              out=nn.Linear(24, 7)), (torch.randint(0, 50, (2, 11)),)


@net
def gru_seq2seq():
    """The encoder's state into a decoder with additive attention, steps written out."""
    def forward(m, src, tgt):
        enc, h = m.enc(m.es(src))
        outs = []
        for t in range(4):
            a = torch.softmax(m.v(torch.tanh(m.wq(h[-1])[:, None] + m.wk(enc)))[..., 0], -1)
            c = torch.bmm(a[:, None], enc)
            y, h = m.dec(torch.cat([m.et(tgt[:, t:t + 1]), c], -1), h)
            outs.append(m.out(y))
        return torch.cat(outs, 1)
    return Of(forward, es=nn.Embedding(30, 12), et=nn.Embedding(30, 12), enc=nn.GRU(12, 16, batch_first=True), dec=nn.GRU(28, 16, batch_first=True),
              wq=nn.Linear(16, 8), wk=nn.Linear(16, 8), v=nn.Linear(8, 1), out=nn.Linear(16, 30)), (torch.randint(0, 30, (2, 6)), torch.randint(0, 30, (2, 4)))


@net
def gpt_step():
    """One token with a cache of keys and values, rotary positions from a tensor of positions, groups of heads, RMS norms, SwiGLU."""
    d, h, g, past = 32, 4, 2, 7
    c = d // h

    def rope(x, pos):
        a = pos[:, None, :, None].float() * (10000.0 ** (-torch.arange(0, c, 2, dtype=torch.float32) / c))
        a = torch.cat([a, a], -1)
        half = torch.cat([-x[..., c // 2:], x[..., :c // 2]], -1)
        return x * a.cos() + half * a.sin()

    def rms(x, w):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w

    def forward(m, ids, pos, mask, pk, pv):
        x = m.e(ids)
        y = rms(x, m.n1)
        q, k, v = heads(m.q(y), h), heads(m.k(y), g), heads(m.v(y), g)
        q, k = rope(q, pos), torch.cat([pk, rope(k, pos)], 2)
        v = torch.cat([pv, v], 2)
        b, _, s, _ = k.shape
        kk, vv = (t[:, :, None].expand(b, g, h // g, s, c).reshape(b, h, s, c) for t in (k, v))
        bias = torch.where(mask[:, None, None, :], 0.0, torch.finfo(torch.float32).min)
        x = x + m.o(merged((torch.softmax(q @ kk.transpose(-1, -2) / math.sqrt(c) + bias, -1) @ vv)))
        y = rms(x, m.n2)
        x = x + m.down(F.silu(m.gate(y)) * m.up(y))
        return rms(x, m.n3) @ m.e.weight.t(), k, v
    mask = torch.ones(2, past + 1, dtype=torch.bool)
    mask[1, :3] = False
    return Of(forward, e=nn.Embedding(64, d), q=nn.Linear(d, d, bias=False), k=nn.Linear(d, g * c, bias=False), v=nn.Linear(d, g * c, bias=False),
              o=nn.Linear(d, d, bias=False), n1=par(d), n2=par(d), n3=par(d), gate=nn.Linear(d, 48, bias=False), up=nn.Linear(d, 48, bias=False),
              down=nn.Linear(48, d, bias=False)), (torch.randint(0, 64, (2, 1)), torch.tensor([[past], [past]]), mask, torch.randn(2, g, past, c), torch.randn(2, g, past, c))


@net
def gpt_prefill():
    """Learned positions, a causal mask made in the model, PyTorch's own attention with is_causal."""
    def forward(m, ids):
        s = ids.shape[1]
        x = m.e(ids) + m.p(torch.arange(s))
        q, k, v = (heads(t, 4) for t in m.qkv(m.n(x)).split(32, -1))
        x = x + m.o(merged(F.scaled_dot_product_attention(q, k, v, is_causal=True)))
        q, k, v = (heads(t, 4) for t in m.qkv(m.n(x)).split(32, -1))
        w = (q @ k.transpose(-1, -2)).masked_fill(torch.ones(s, s, dtype=torch.bool).tril().logical_not(), float("-inf"))
        x = x + m.o(merged(w.softmax(-1) @ v))
        return m.head(x)[:, -1].topk(5)[0]
    return Of(forward, e=nn.Embedding(64, 32), p=nn.Embedding(16, 32), n=nn.LayerNorm(32), qkv=nn.Linear(32, 96), o=nn.Linear(32, 32),
              head=nn.Linear(32, 64, bias=False)), (torch.randint(0, 64, (2, 9)),)


@net
def whisper():
    """Encoder over spectrograms and one decoder layer with cross attention."""
    def forward(m, mel, ids):
        x = F.gelu(m.c2(F.gelu(m.c1(mel)))).transpose(1, 2) + m.pos
        x = m.enc(x)
        y = m.e(ids)
        n = ids.shape[1]
        a, _ = m.self_(y, y, y, attn_mask=torch.triu(torch.full((n, n), float("-inf")), 1), need_weights=False)
        y = m.n1(y + a)
        a, w = m.cross(y, x, x)
        y = m.n2(y + a)
        return y @ m.e.weight.t(), w
    return Of(forward, c1=nn.Conv1d(20, 32, 3, padding=1), c2=nn.Conv1d(32, 32, 3, 2, 1), pos=par(1, 15, 32), enc=nn.TransformerEncoderLayer(32, 4, 64, batch_first=True,
              activation="gelu", norm_first=True), e=nn.Embedding(40, 32), self_=nn.MultiheadAttention(32, 4, batch_first=True),
              cross=nn.MultiheadAttention(32, 4, batch_first=True), n1=nn.LayerNorm(32), n2=nn.LayerNorm(32)), (torch.randn(2, 20, 30), torch.randint(0, 40, (2, 5)))


@net
def bert():
    """Ids, types and a mask; mean pooling over what the mask leaves, normalised."""
    def forward(m, ids, types, mask):
        x = m.n(m.e(ids) + m.t(types) + m.p(torch.arange(ids.shape[1])[None]))
        bias = (1.0 - mask[:, None, None].float()) * -1e9
        for l in (m.l1, m.l2):
            q, k, v = heads(l.q(x), 4), heads(l.k(x), 4), heads(l.v(x), 4)
            a = l.o(merged(torch.softmax(torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(8) + bias, -1) @ v))
            x = l.n1(x + a)
            x = l.n2(x + l.f2(F.gelu(l.f1(x))))
        w = mask[..., None].float()
        y = (x * w).sum(1) / w.sum(1).clamp(min=1e-9)
        return F.normalize(y, dim=1), torch.tanh(m.pool(x[:, 0]))

    def layer():
        return nn.ModuleDict(dict(q=nn.Linear(32, 32), k=nn.Linear(32, 32), v=nn.Linear(32, 32), o=nn.Linear(32, 32), n1=nn.LayerNorm(32), n2=nn.LayerNorm(32),
                                  f1=nn.Linear(32, 64), f2=nn.Linear(64, 32)))

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            for k, v in layer().items():
                setattr(self, k, v)
    mask = torch.ones(2, 12, dtype=torch.int64)
    mask[1, 8:] = 0
    return Of(forward, e=nn.Embedding(60, 32), t=nn.Embedding(2, 32), p=nn.Embedding(20, 32), n=nn.LayerNorm(32), l1=Layer(), l2=Layer(),
              pool=nn.Linear(32, 32)), (torch.randint(0, 60, (2, 12)), torch.zeros(2, 12, dtype=torch.int64), mask)


@net
def yolo():
    """SPPF, C2f-like splits, three scales upsampled, a head that decodes boxes by a distribution and by anchors made in the model."""
    def cbs(i, o, k=1, s=1):
        return nn.Sequential(nn.Conv2d(i, o, k, s, k // 2, bias=False), nn.BatchNorm2d(o), nn.SiLU())

    def forward(m, x):
        a = m.c1(x)
        b = m.c2(a)
        u, v = m.c3(b).chunk(2, 1)
        b = m.c4(torch.cat([u, v, m.c5(v)], 1))
        y1 = F.max_pool2d(b, 5, 1, 2)
        y2 = F.max_pool2d(y1, 5, 1, 2)
        b = m.spp(torch.cat([b, y1, y2, F.max_pool2d(y2, 5, 1, 2)], 1))
        a = m.c6(torch.cat([F.interpolate(b, scale_factor=2.0, mode="nearest"), a], 1))
        outs, anchors, strides = [], [], []
        for f, head, s in ((a, m.h1, 2), (b, m.h2, 4)):
            n, _, h, w = f.shape
            outs.append(head(f).view(n, 32 + 5, h * w))
            gy, gx = torch.meshgrid(torch.arange(h) + 0.5, torch.arange(w) + 0.5, indexing="ij")
            anchors.append(torch.stack([gx, gy], -1).view(-1, 2))
            strides.append(torch.full((h * w, 1), float(s)))
        box, cls = torch.cat(outs, 2).split([32, 5], 1)
        p = torch.cat(anchors).t()
        n = box.shape[0]
        box = box.view(n, 4, 8, -1).transpose(2, 1).softmax(1)
        d = (box * torch.arange(8.0).view(1, 8, 1, 1)).sum(1)
        lt, rb = d.chunk(2, 1)
        x1, x2 = p[None] - lt, p[None] + rb
        boxes = torch.cat([(x1 + x2) / 2, x2 - x1], 1) * torch.cat(strides).t()
        return torch.cat([boxes, cls.sigmoid()], 1)
    return Of(forward, c1=cbs(3, 16, 3, 2), c2=cbs(16, 16, 3, 2), c3=cbs(16, 16), c5=cbs(8, 8, 3), c4=cbs(24, 16), spp=cbs(64, 16), c6=cbs(32, 16),
              h1=nn.Conv2d(16, 37, 1), h2=nn.Conv2d(16, 37, 1)), (torch.rand(1, 3, 32, 48),)


@net
def moe():
    """Every expert for every token, weighted by the two that the router chose."""
    def forward(m, x):
        p = m.router(x).softmax(-1)
        w, i = p.topk(2, -1)
        w = w / w.sum(-1, keepdim=True)
        gate = torch.zeros_like(p).scatter(-1, i, w)
        y = torch.einsum("bsd,edf->bsef", x, m.w1)
        y = torch.einsum("bsef,efd->bsed", F.gelu(y, approximate="tanh"), m.w2)
        return (y * gate[..., None]).sum(2)
    return Of(forward, router=nn.Linear(16, 4), w1=par(4, 16, 32), w2=par(4, 32, 16)), (torch.randn(2, 6, 16),)


@net
def moe_gathered():
    """The weights of the chosen experts are gathered by data; counts by one-hot."""
    def forward(m, x):
        p = m.router(x).softmax(-1)
        w, i = p.topk(2, -1)
        h = torch.einsum("td,tkdf->tkf", x, m.w1[i])
        y = torch.einsum("tkf,tkfd->tkd", F.relu(h) ** 2, m.w2[i])
        load = F.one_hot(i, 4).sum((0, 1))
        return (y * w[..., None]).sum(1), load
    return Of(forward, router=nn.Linear(16, 4), w1=par(4, 16, 24), w2=par(4, 24, 16)), (torch.randn(5, 16),)


@net
def mamba():
    """A selective scan, its steps written out; a causal depthwise convolution before it."""
    def forward(m, x):
        b, s, d = x.shape
        u, z = m.inp(x).chunk(2, -1)
        u = F.silu(m.conv(u.transpose(1, 2))[..., :s].transpose(1, 2))
        dt, bb, cc = m.xp(u).split([4, 8, 8], -1)
        dt = F.softplus(m.dt(dt))
        a = -torch.exp(m.a)
        da, db = torch.exp(dt[..., None] * a), dt[..., None] * bb[:, :, None] * u[..., None]
        h, ys = torch.zeros(b, 32, 8), []
        for t in range(s):
            h = da[:, t] * h + db[:, t]
            ys.append((h * cc[:, t, None]).sum(-1))
        return m.out((torch.stack(ys, 1) + u * m.d) * F.silu(z))
    return Of(forward, inp=nn.Linear(16, 64), conv=nn.Conv1d(32, 32, 4, padding=3, groups=32), xp=nn.Linear(32, 20), dt=nn.Linear(4, 32), a=par(32, 8), d=par(32),
              out=nn.Linear(32, 16)), (torch.randn(1, 10, 16),)


@net
def mamba_cumsum():
    """The same family by prefix sums instead of steps (a structured state space with a scalar decay)."""
    def forward(m, x):
        dt = F.softplus(m.dt(x))
        l = torch.cumsum(-dt * F.softplus(m.a), 1)
        w = torch.exp(l[:, :, None] - l[:, None]) * torch.ones(x.shape[1], x.shape[1]).tril()[None, :, :, None]
        s = torch.einsum("btn,bsn->bts", m.c(x), m.b(x))
        return torch.einsum("bts,btsh,bshd->bthd", s, w, (m.v(x) * 0.1).unflatten(-1, (4, 8)) * dt[..., None]).flatten(2)
    return Of(forward, dt=nn.Linear(16, 4), a=par(4), c=nn.Linear(16, 6), b=nn.Linear(16, 6), v=nn.Linear(16, 32)), (torch.randn(2, 9, 16),)


@net
def gat():
    """Graph attention by edges: gathers, a softmax by scatter (max and sum), a weighted scatter."""
    def forward(m, x, edges):
        n = x.shape[0]
        h = m.w(x).view(n, 2, 8)
        src, dst = edges[0], edges[1]
        e = F.leaky_relu((h * m.a1).sum(-1)[src] + (h * m.a2).sum(-1)[dst], 0.2)
        top = torch.full((n, 2), -1e30).scatter_reduce(0, dst[:, None].expand(-1, 2), e, "amax")
        p = torch.exp(e - top[dst])
        total = torch.zeros(n, 2).index_add(0, dst, p)
        y = torch.zeros(n, 2, 8).index_add(0, dst, h[src] * (p / total[dst])[..., None])
        return F.elu(y.flatten(1))
    return Of(forward, w=nn.Linear(10, 16), a1=par(1, 2, 8), a2=par(1, 2, 8)), (torch.randn(7, 10), torch.stack([torch.randint(0, 7, (20,)), torch.cat([torch.arange(7), torch.randint(0, 7, (13,))])]))


@net
def superres():
    def forward(m, x):
        y = F.leaky_relu(m.a(x), 0.1)
        y = y + m.c(F.prelu(m.b(y), m.p))
        return F.pixel_shuffle(m.d(y), 3) + F.interpolate(x, scale_factor=3, mode="bicubic", align_corners=False)
    return Of(forward, a=nn.Conv2d(3, 16, 5, padding=2, padding_mode="reflect"), b=nn.Conv2d(16, 16, 3, padding=1), c=nn.Conv2d(16, 16, 3, padding=1), p=par(16),
              d=nn.Conv2d(16, 27, 3, padding=1)), (torch.rand(1, 3, 14, 17),)


@net
def wav2vec():
    """Strided convolutions over samples, group norm with one channel a group, a positional convolution with weight norm."""
    def forward(m, x):
        x = (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + 1e-7)
        y = F.gelu(m.g(m.c1(x[:, None])))
        y = F.gelu(m.c2(y))
        y = m.p(m.n(y.transpose(1, 2)))
        y = y + F.gelu(m.pos(y.transpose(1, 2))[..., :-1].transpose(1, 2))
        return m.blocks(y).argmax(-1), F.glu(m.out(y), -1)
    pos = torch.nn.utils.parametrizations.weight_norm(nn.Conv1d(32, 32, 16, padding=8, groups=4), dim=2)
    return Of(forward, c1=nn.Conv1d(1, 16, 10, 5, bias=False), g=nn.GroupNorm(16, 16), c2=nn.Conv1d(16, 16, 3, 2), n=nn.LayerNorm(16), p=nn.Linear(16, 32), pos=pos,
              blocks=attention_block(), out=nn.Linear(32, 24)), (torch.randn(1, 400),)


@net
def diffusion():
    """A block of a denoiser: sinusoidal time, group norms, scale and shift, attention over pixels, nearest upsampling."""
    def forward(m, x, t, ctx):
        f = torch.exp(-math.log(10000) * torch.arange(8) / 8)
        a = t[:, None].float() * f[None]
        e = m.t2(F.silu(m.t1(torch.cat([a.sin(), a.cos()], -1))))
        y = m.c1(F.silu(m.g1(x)))
        scale, shift = e[..., None, None].chunk(2, 1)
        y = m.c2(F.silu(m.g2(y) * (1 + scale) + shift)) + m.skip(x)
        b, c, h, w = y.shape
        z = m.g3(y).reshape(b, c, h * w).transpose(1, 2)
        z = F.scaled_dot_product_attention(heads(m.q(z), 2), heads(m.k(ctx), 2), heads(m.v(ctx), 2))
        y = y + m.o(merged(z)).transpose(1, 2).reshape(b, c, h, w)
        return m.up(F.interpolate(F.avg_pool2d(y, 2), scale_factor=2, mode="nearest"))
    return Of(forward, t1=nn.Linear(16, 32), t2=nn.Linear(32, 64), g1=nn.GroupNorm(4, 16), c1=nn.Conv2d(16, 32, 3, padding=1), g2=nn.GroupNorm(8, 32),
              c2=nn.Conv2d(32, 32, 3, padding=1), skip=nn.Conv2d(16, 32, 1), g3=nn.GroupNorm(8, 32), q=nn.Linear(32, 32), k=nn.Linear(12, 32), v=nn.Linear(12, 32),
              o=nn.Linear(32, 32), up=nn.Conv2d(32, 16, 3, padding=1)), (torch.randn(2, 16, 8, 8), torch.tensor([3, 700]), torch.randn(2, 5, 12))


@net
def detr():
    """torch's own Transformer with learned queries, masks of padding."""
    def forward(m, x, pad):
        f = m.b(x)
        s = m.p(f).flatten(2).transpose(1, 2)
        q = m.q[None].expand(x.shape[0], -1, -1)
        y = m.t(s, q, src_key_padding_mask=pad, memory_key_padding_mask=pad)
        return m.c(y), m.box(y).sigmoid()
    pad = torch.zeros(2, 16, dtype=torch.bool)
    pad[1, 12:] = True
    return Of(forward, b=nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1)), p=nn.Conv2d(16, 32, 1), q=par(6, 32),
              t=nn.Transformer(32, 4, 1, 1, 64, batch_first=True), c=nn.Linear(32, 5), box=nn.Linear(32, 4)), (torch.randn(2, 3, 16, 16), pad)


@net
def hubert_like_ctc():
    """A convolutional recurrent recogniser: pooled to columns, a bidirectional LSTM, argmax by step."""
    def forward(m, x):
        f = m.c(x).mean(2).permute(0, 2, 1)
        y, _ = m.r(f)
        p = m.o(y).softmax(-1)
        return p, p.argmax(-1), p.max(-1)[0]
    return Of(forward, c=nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d((2, 2)), nn.Conv2d(8, 16, 3, padding=1), nn.Hardswish(), nn.InstanceNorm2d(16, affine=True)),
              r=nn.LSTM(16, 10, bidirectional=True, batch_first=True), o=nn.Linear(20, 9)), (torch.rand(1, 1, 16, 24),)


@net
def deeplab():
    """Dilations, pooling to one pixel and back, ceil_mode, a map of classes."""
    def forward(m, x):
        f = m.b(x)
        g = F.interpolate(m.g(F.adaptive_avg_pool2d(f, 1)), size=f.shape[2:], mode="bilinear", align_corners=False)
        y = m.o(torch.cat([m.a1(f), m.a2(f), m.a3(f), g], 1))
        y = F.interpolate(y, size=x.shape[2:], mode="bilinear", align_corners=False)
        return y, y.argmax(1)
    return Of(forward, b=nn.Sequential(nn.Conv2d(3, 12, 3, 2, 1), nn.ReLU6(), nn.MaxPool2d(3, 2, 1, ceil_mode=True)), a1=nn.Conv2d(12, 8, 1), a2=nn.Conv2d(12, 8, 3, padding=2, dilation=2),
              a3=nn.Conv2d(12, 8, 3, padding=4, dilation=4), g=nn.Conv2d(12, 8, 1), o=nn.Conv2d(32, 4, 1)), (torch.rand(1, 3, 33, 47),)


@net
def shufflenet_mixer():
    """Channel shuffle, an MLP mixer, adaptive pooling to several bins, a linear head by einsum."""
    def forward(m, x):
        b = x.shape[0]
        y = F.relu(m.g(x)).view(b, 4, 4, 12, 12).transpose(1, 2).reshape(b, 16, 12, 12)
        t = y.flatten(2).transpose(1, 2)
        t = t + m.tok(m.n(t).transpose(1, 2)).transpose(1, 2)
        y = t.transpose(1, 2).reshape(b, 16, 12, 12)
        bins = torch.cat([F.adaptive_avg_pool2d(y, n).flatten(1) for n in (1, 2, 3)], 1)
        return torch.einsum("bk,kc->bc", bins, m.w)
    return Of(forward, g=nn.Conv2d(8, 16, 1, groups=4), n=nn.LayerNorm(16), tok=nn.Sequential(nn.Linear(144, 64), nn.Mish(), nn.Linear(64, 144)), w=par(16 * 14, 10)), (torch.randn(2, 8, 12, 12),)


@net
def nerf():
    """Positional encoding by powers of two, a skip, volume rendering by sums of logarithms of what passes."""
    def forward(m, p, d):
        f = 2.0 ** torch.arange(4)
        e = (p[..., None] * f).flatten(-2)
        e = torch.cat([p, e.sin(), e.cos()], -1)
        h = F.relu(m.a(e))
        h = F.relu(m.b(torch.cat([h, e], -1)))
        rgb, s = m.c(h).split([3, 1], -1)
        alpha = 1 - torch.exp(-F.relu(s[..., 0]) * d)
        trans = torch.exp(torch.cumsum(torch.log(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], 1)), 1))[:, :-1]
        w = alpha * trans
        return (w[..., None] * rgb.sigmoid()).sum(1), (w * torch.cumsum(d, 1)).sum(1)
    return Of(forward, a=nn.Linear(27, 32), b=nn.Linear(59, 32), c=nn.Linear(32, 4)), (torch.randn(6, 10, 3), torch.rand(6, 10))


@net
def recommender():
    """Tables by bags, crosses of features, a masked mean."""
    def forward(m, dense, ids, bag):
        e = torch.stack([m.t1(ids[:, 0]), m.t2(ids[:, 1]), m.bag(bag)], 1)
        x = torch.cat([m.bot(dense)[:, None], e], 1)
        z = torch.bmm(x, x.transpose(1, 2))
        i, j = torch.tril_indices(4, 4, -1)
        return torch.sigmoid(m.top(torch.cat([m.bot(dense), z[:, i, j]], 1)))
    return Of(forward, t1=nn.Embedding(20, 8), t2=nn.Embedding(20, 8), bag=nn.EmbeddingBag(20, 8, mode="mean"), bot=nn.Sequential(nn.Linear(5, 8), nn.ReLU()),
              top=nn.Sequential(nn.Linear(14, 16), nn.ReLU(), nn.Linear(16, 1))), (torch.randn(4, 5), torch.randint(0, 20, (4, 2)), torch.randint(0, 20, (4, 3)))


@net
def nms_head():
    """A detector whose boxes are chosen in the model by a fixed number of greedy turns, as exports for devices do it."""
    def forward(m, boxes, scores):
        s, picked = scores.clone(), []
        lt, rb = boxes[:, :2], boxes[:, 2:]
        area = (rb - lt).clamp(min=0).prod(-1)
        for _ in range(4):
            i = s.argmax()
            b = boxes[i]
            inter = (torch.minimum(rb, b[2:]) - torch.maximum(lt, b[:2])).clamp(min=0).prod(-1)
            iou = inter / (area + area[i] - inter + 1e-6)
            picked.append(torch.cat([b, s[i][None]]))
            s = torch.where(iou > 0.5, -1.0, s)
        return torch.stack(picked)
    xy = torch.rand(30, 2)
    return Of(forward), (torch.cat([xy, xy + 0.2 + torch.rand(30, 2) * 0.2], 1), torch.rand(30))
