#!/usr/bin/env python3
"""The chart and the compose file as what they become: templates rendered by a small reader of the part of Go's template language that they use, the results read as
YAML and held against each other and against the program's settings. Not Helm itself, and no cluster. Usage: chart.py [BUILD]"""
import glob, json, os, re, shutil, subprocess, sys, tempfile
import yaml
sys.path.insert(0, os.path.dirname(__file__))
from service import Checks

build = sys.argv[1] if len(sys.argv) > 1 else "build"
check = Checks()
CHART = "packaging/helm/kiln/"

class Template:
    """{{ }} with paths, strings, variables, ternary, ne, quote, toYaml, nindent, if, range over a map, :=, and the trimming dashes; anything else is an error."""
    def __init__(self, text):
        text = re.sub(r"\s*{{-", "{{", text)
        text = re.sub(r"-}}\s*", "}}", text)
        self.parts = re.split(r"{{(.*?)}}", text, flags=re.S)

    def render(self, scope):
        out, end = self.block(1, scope, True)
        if end < len(self.parts): raise SyntaxError("an end too many")
        return self.parts[0] + out

    def block(self, i, scope, on):
        """From part i to its end; the text, and the number of the part after it."""
        out = []
        while i < len(self.parts):
            words, after = self.parts[i].strip(), self.parts[i + 1]
            if words == "end": return "".join(out), i
            if words.startswith("if "):
                value = on and self.value(words[3:], scope)
                inner, i = self.block_of(i, scope, bool(value))
                out.append(inner)
            elif words.startswith("range "):
                names, source = re.fullmatch(r"range (\$\w+), (\$\w+) := (.+)", words).groups()[:2], words.split(":=")[1]
                start = i
                for k, v in sorted(self.value(source, scope).items() if on else {}.items()):
                    inner, i = self.block_of(start, {**scope, names[0]: k, names[1]: v}, True)
                    out.append(inner)
                if i == start: _, i = self.block_of(start, scope, False)
            elif ":=" in words:
                name, source = words.split(":=", 1)
                scope[name.strip()] = self.value(source, scope)
            elif on: out.append(str(self.value(words, scope)))
            out.append(self.parts[i + 1] if on else "")
            i += 2
        return "".join(out), i

    def block_of(self, i, scope, on):
        """The inside of the if or range at part i, and the part of its end."""
        inner, end = self.block(i + 2, scope, on)
        if end >= len(self.parts): raise SyntaxError("no end of " + self.parts[i])
        return (self.parts[i + 1] + inner) if on else "", end

    def value(self, text, scope):
        value = None
        for n, stage in enumerate(s.strip() for s in text.split("|")):
            words = re.findall(r'"[^"]*"|\([^)]*\)|\S+', stage)
            args = [self.atom(w, scope) for w in words[1:]] + ([value] if n else [])
            if words[0] in FUNCTIONS: value = FUNCTIONS[words[0]](*args)
            elif not args: value = self.atom(words[0], scope)
            else: raise SyntaxError("no function " + words[0])
        return value

    def atom(self, word, scope):
        if word[0] == '"': return word[1:-1]
        if word[0] == "(": return self.value(word[1:-1], scope)
        if word.isdigit(): return int(word)
        if word[0] == "$": return scope[word]
        at = scope
        for name in word.strip(".").split("."): at = at[name]
        return at

FUNCTIONS = {"quote": json.dumps, "ne": lambda a, b: a != b, "ternary": lambda a, b, c: a if c else b,
             "toYaml": lambda v: yaml.safe_dump(v, default_flow_style=False).strip().removesuffix("\n..."),
             "nindent": lambda n, s: "\n" + "\n".join(" " * n + line for line in s.splitlines())}

def render(values):
    scope = {"Values": values, "Release": {"Name": "here"}}
    return [o for path in sorted(glob.glob(CHART + "templates/*.yaml")) for o in yaml.safe_load_all(Template(open(path).read()).render(dict(scope))) if o]

def settings():
    """Flags of a program, as its --help names them."""
    text = subprocess.run([build + "/kilnd", "--help"], capture_output=True, text=True).stdout
    return set(re.findall(r"--([a-z][a-z-]*)", text))

def accepted(what, command, environment):
    """The program itself reads the settings. Paths of secrets are paths of the container; a file of the same kind stands in for each."""
    with tempfile.TemporaryDirectory() as folder:
        key = folder + "/secret"
        open(key, "w").write("k" * 32 + "\n")
        command = [key if a.startswith(("/run/secrets/", "/etc/kiln/")) else a for a in command]
        environment = {k: key if v.startswith(("/run/secrets/", "/etc/kiln/")) else v for k, v in environment.items()}
        r = subprocess.run([build + "/kilnd", "--hwspecs", "hwspecs", "--data", folder, *command, "--check-config"], capture_output=True, text=True,
                           env={"PATH": os.environ["PATH"], **environment})
        check("--check-config of " + what, r.returncode == 0, r)
        r = subprocess.run([build + "/kilnd", "--hwspecs", "hwspecs", "--data", folder, *command, "--check-config", "--no-such-flag"], capture_output=True, text=True)
        check("and it does judge", r.returncode != 0, r)

def worker_flags():
    r = subprocess.run([build + "/kiln-worker", "run", "--help"], capture_output=True, text=True)
    return set(re.findall(r"--([a-z][a-z-]*)", r.stdout + r.stderr))

def judge(objects, tls):
    kinds = sorted(o["kind"] for o in objects)
    check("kinds", kinds == ["Deployment", "Deployment", "PodDisruptionBudget", "Service"], kinds)
    names = [(o["kind"], o["metadata"]["name"]) for o in objects]
    check("names are not given twice", len(names) == len(set(names)), names)
    pods = {}
    for d in (o for o in objects if o["kind"] == "Deployment"):
        pod = d["spec"]["template"]
        labels, wanted = pod["metadata"]["labels"], d["spec"]["selector"]["matchLabels"]
        check("selector of " + d["metadata"]["name"], wanted.items() <= labels.items(), (wanted, labels))
        for c in pod["spec"]["containers"]:
            pods[c["name"]] = (pod, c)
            mounted, there = {m["name"] for m in c["volumeMounts"]}, {v["name"] for v in pod["spec"]["volumes"]}
            check("volumes of " + c["name"], mounted <= there, (mounted, there))
            check("no rights in " + c["name"], pod["spec"]["securityContext"]["runAsNonRoot"] and c["securityContext"]["capabilities"] == {"drop": ["ALL"]} and
                  c["securityContext"]["readOnlyRootFilesystem"] and not c["securityContext"]["allowPrivilegeEscalation"], c["securityContext"])
            check("values of variables are text", all(isinstance(e.get("value", ""), str) for e in c["env"]), c["env"])
    pod, c = pods["kilnd"]
    accepted("the chart", c["args"], {e["name"]: e.get("value", "redis://x:1" if "REDIS" in e["name"] else "postgresql://x/y") for e in c["env"]})
    flags_of = {a[2:] for a in pods["worker"][1].get("args", []) if a.startswith("--")} | {e["name"][5:].lower().replace("_", "-") for e in pods["worker"][1]["env"]
                                                                                         if e["name"].startswith("KILN_")}
    check("the worker knows them", flags_of <= worker_flags(), (flags_of, worker_flags()))
    flags, known = [a[2:] for a in c["args"] if a.startswith("--")], settings()
    check("its flags are flags", set(flags) <= known, (flags, known))
    variables = {e["name"][5:].lower().replace("_", "-") for e in c["env"]}
    check("its variables are settings", variables <= known, variables - known)
    port = c["ports"][0]["containerPort"]
    check("it listens where it is asked", f"0.0.0.0:{port}" in c["args"], c["args"])
    for probe in "readinessProbe", "livenessProbe":
        check(probe, c[probe]["httpGet"]["scheme"] == ("HTTPS" if tls else "HTTP") and c[probe]["httpGet"]["path"] in ("/readyz", "/livez"), c[probe])
    check("TLS", ("tls-cert" in variables) == tls and any(v["name"] == "tls" for v in pod["spec"]["volumes"]) == tls)
    for o in objects:
        if o["kind"] in ("Service", "PodDisruptionBudget"):
            selector = o["spec"]["selector"] if o["kind"] == "Service" else o["spec"]["selector"]["matchLabels"]
            check(o["kind"] + " finds the pods", selector.items() <= pod["metadata"]["labels"].items(), selector)
    check("time to drain", pod["spec"]["terminationGracePeriodSeconds"] > 10)

values = yaml.safe_load(open(CHART + "values.yaml"))
judge(render(values), False)
values["service"]["tlsSecret"] = "tls"
values["workers"].update(nodeSelector={"gpu": "h200", "zone": "a"}, extraArgs=["--slots", "2"])
objects = render(values)
judge(objects, True)
worker = next(o for o in objects if o["metadata"]["name"].endswith("worker"))["spec"]["template"]["spec"]
check("values arrive", worker["nodeSelector"] == {"gpu": "h200", "zone": "a"} and worker["containers"][0]["args"] == ["--slots", "2"], worker)
chart = yaml.safe_load(open(CHART + "Chart.yaml"))
version = re.search(r'SERVICE_VERSION "(.*)"', open("service/service.h").read()).group(1)
check("versions", chart["appVersion"] == version and values["image"]["tag"] == version, chart)

compose = yaml.safe_load(open("docker-compose.yml"))["services"]
check("parts of the fleet", sorted(compose) == ["kilnd", "postgres", "prometheus", "redis", "worker"] and compose["worker"]["deploy"]["replicas"] == 2, compose)
check("only loopback is published", all(p.startswith("127.0.0.1:") for s in compose.values() for p in s.get("ports", [])), compose)
check("compose flags", {a[2:] for a in compose["kilnd"]["command"] if a.startswith("--")} <= settings())
accepted("compose", compose["kilnd"]["command"], compose["kilnd"]["environment"])
check("compose's worker", {a[2:] for a in compose["worker"]["command"] if a.startswith("--")} <= worker_flags(), worker_flags())
stages = open("Dockerfile").read()
check("compose runs what the image has", all(f"/{p}" in stages or p in stages for p in ("kilnd", compose["worker"]["entrypoint"][0])), compose)
wants = {n for s in compose.values() for n in s.get("secrets", [])} | {v.split(":")[0] for s in compose.values() for v in s.get("volumes", []) if v[0] not in "./"}
text = yaml.safe_load(open("docker-compose.yml"))
check("volumes and secrets are declared", wants <= set(text["volumes"]) | set(text["secrets"]), wants)
check("files are there", all(os.path.exists(v.split(":")[0]) for s in compose.values() for v in s.get("volumes", []) if v.startswith("./")), compose)
if shutil.which("docker-compose"):
    r = subprocess.run(["docker-compose", "-f", "docker-compose.yml", "config", "-q"], capture_output=True, text=True)
    check("docker-compose config", r.returncode == 0, r)
if shutil.which("yamllint"):
    files = ["docker-compose.yml", CHART + "values.yaml", CHART + "Chart.yaml", *glob.glob("packaging/prometheus/*.yml"), "tests/data/alerts_test.yml"]
    r = subprocess.run(["yamllint", "-s", "-d", "{extends: relaxed, rules: {line-length: disable}}", *files], capture_output=True, text=True)
    check("yamllint", r.returncode == 0, r)
sys.exit(check.end())
