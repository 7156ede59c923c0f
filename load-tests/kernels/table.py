"""Markdown tables of a result.json: a row a family, then a row a case. usage: table.py result.json > table.md"""
import json, math, sys

NO_PEERS = ("kiln packed", "kiln one thread")

def mean(values): return math.exp(sum(map(math.log, values)) / len(values)) if values else None
def number(v): return "-" if v is None else f"{v:.2f}"

def best_of(case):
    """None: no peer takes part."""
    return min((x for x in case["contestants"][1:] if not x["wrong"] and x["name"] not in NO_PEERS), key=lambda x: x["us"], default=None)

def rows(cases, peers):
    """Kiln's share of the ceiling, the best peer's, then the peers' time over Kiln's."""
    own = [c for c in cases if c["constructed"] and not c["contestants"][0]["wrong"]]
    best = [x for x in map(best_of, own) if x]
    cells = [number(mean([c["contestants"][0]["of_ceiling"] for c in own])), number(mean([x["of_ceiling"] for x in best])),
             number(mean([x["ratio"] for x in best]))]
    for name in peers:
        found = [x["ratio"] for c in own for x in c["contestants"] if x["name"] == name and not x["wrong"]]
        cells.append(number(mean(found)) + (f" ({len(found)})" if found and len(found) < len(own) else ""))
    return cells

def table(title, groups, peers):
    print(f"| {title} | Kiln of ceiling | best peer of ceiling | best peer | " + " | ".join(peers) + " |")
    print("| --- " * (len(peers) + 4) + "|")
    for name, cases in groups:
        print(f"| {name} | " + " | ".join(rows(cases, peers)) + " |")

result = json.load(open(sys.argv[1]))
peers, families = [], {}
for case in result["cases"]:
    families.setdefault(case["family"], []).append(case)
    peers += [x["name"] for x in case["contestants"][1:] if x["name"] not in peers]
print(f"{result['threads']} thread(s), {result['rounds']} rounds, hardware description {result['target']}.\n")
table("family (cases)", [(f"{f} ({len(c)})", c) for f, c in families.items()], peers)
print()
print("| case | us | rate | of ceiling | best peer | its time over Kiln's (p10 to p90) | over Kiln's, weights packed ahead |\n| --- | --- | --- | --- | --- | --- | --- |")
for c in result["cases"]:
    if not c["constructed"]: continue
    own, by_flops = c["contestants"][0], "gemm" in c["family"] or "conv" in c["family"] or "depthwise" in c["family"]
    best = best_of(c)
    packed = [f"{best['us'] / x['us']:.2f}" for x in c["contestants"] if best and x["name"] == "kiln packed"]
    rate = f"{c['flops'] / own['us'] / 1e3:.1f} GFLOP/s" if by_flops else f"{c['bytes'] / own['us'] / 1e3:.1f} GB/s"
    beside = f"{best['name']} | {best['ratio']:.2f} ({best['ratio_p10']:.2f} to {best['ratio_p90']:.2f})" if best else "- | -"
    print(f"| {c['id']} | {own['us']:.1f} | {rate} | {own['of_ceiling']:.2f} | {beside} | {''.join(packed)} |")
print()
for c in result["cases"]:
    if not c["constructed"]: print(f"- {c['id']} is not constructed: {c['note']}")
    for x in c["contestants"]:
        if x["wrong"]: print(f"- {c['id']}: {x['name']} is wrong in {x['wrong']} elements")
