/* The runtimes that `kiln bench` compares with: a Python process that reads the model and its inputs and times a run whenever it is asked.
 * To it: a line of JSON, the bytes of inputs and outputs, then a line a run. From it: "ok VERSION DIFFERENCE" or "no WHY", then microseconds. */
#include "api/cli/peer.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WAIT_MS = 120000 }; /* for a line of the child's */

/* Standard output is kept for the answers; whatever a library prints goes to standard error. Wrong is relative to the largest magnitude. */
static const char onnxruntime[] =
    "import json, os, sys, time\n"
    "out = os.fdopen(os.dup(1), 'w')\n"
    "os.dup2(2, 1)\n"
    "def say(*words):\n"
    "    print(*words, file=out, flush=True)\n"
    "try:\n"
    "    import numpy, onnxruntime\n"
    "except Exception as e:\n"
    "    say('no', type(e).__name__ + ': ' + str(e).replace('\\n', ' '))\n"
    "    sys.exit()\n"
    "try:\n"
    "    ask = json.loads(sys.stdin.buffer.readline())\n"
    "    types = {'f32': 'f4', 'f64': 'f8', 'f16': 'f2', 'i64': 'i8', 'i32': 'i4', 'i16': 'i2', 'i8': 'i1', 'u8': 'u1', 'bool': '?'}\n"
    "    def read(x):\n"
    "        return numpy.frombuffer(sys.stdin.buffer.read(x['bytes']), types[x['dtype']]).reshape(x['shape'])\n"
    "    feed = {x['name']: read(x) for x in ask['inputs']}\n"
    "    want = [read(x) for x in ask['outputs']]\n"
    "    names = [x['name'] for x in ask['outputs']]\n"
    "    o = onnxruntime.SessionOptions()\n"
    "    o.intra_op_num_threads, o.inter_op_num_threads, o.log_severity_level = ask['threads'], 1, 4\n"
    "    s = onnxruntime.InferenceSession(ask['model'], o, providers=['CPUExecutionProvider'])\n"
    "    wrong = 0.0\n"
    "    for a, b in zip(want, s.run(names, feed)):\n"
    "        a, b = a.astype('f8'), b.astype('f8')\n"
    "        same = (a == b) | (numpy.isnan(a) & numpy.isnan(b))\n"
    "        scale = max(1.0, numpy.abs(b[numpy.isfinite(b)]).max(initial=0))\n"
    "        wrong = max(wrong, numpy.where(same, 0, numpy.nan_to_num(numpy.abs(a - b), nan=numpy.inf)).max(initial=0) / scale)\n"
    "except Exception as e:\n"
    "    say('no', type(e).__name__ + ': ' + str(e).replace('\\n', ' '))\n"
    "    sys.exit()\n"
    "say('ok', onnxruntime.__version__, wrong)\n"
    "for line in sys.stdin.buffer:\n"
    "    s.run(names, feed)\n"
    "    begin = time.perf_counter()\n"
    "    s.run(names, feed)\n"
    "    say((time.perf_counter() - begin) * 1e6)\n";

static const struct { const char *name, *program; } peers[] = {{"onnxruntime", onnxruntime}};

static const char *python(void)
{
    const char *p = getenv("KILN_PYTHON");
    return p && *p ? p : "python3";
}

/* ---- the model ---- */
char *peer_model(struct cli *c, int *status)
{
    char path[4096], hex[65];
    uint8_t digest[32];
    size_t n;
    snprintf(path, sizeof path, "%s/model.json", c->args[0]);
    char *text = cli_read_file(c, path, &n), *file = NULL;
    cJSON *json = text ? cJSON_ParseWithLength(text, n) : NULL;
    const cJSON *source = cJSON_GetObjectItemCaseSensitive(json, "source");
    char *model = c->nargs > 1 ? strdup(c->args[1]) : source ? strdup(json_text(source, "path")) : NULL;
    *status = OK;
    if (!source) *status = cli_fail(DATA, "%s does not say which model it was made of; kiln compile writes that now", c->args[0]);
    else if (!model) *status = cli_fail(SOFTWARE, "out of memory");
    else if (!(file = cli_read_file(c, model, &n))) *status = cli_fail(NO_INPUT, "where is the model now? kiln bench DIR FILE.onnx --against NAME");
    if (file) {
        kiln_sha256(file, n, digest);
        kiln_hex(digest, 32, hex);
        if (strcmp(hex, json_text(source, "sha256"))) *status = cli_fail(DATA, "%s is not the model that %s was made of", model, c->args[0]);
    }
    free(text);
    free(file);
    cJSON_Delete(json);
    if (*status == OK) return model;
    free(model);
    return NULL;
}

/* ---- the child ---- */
static bool start(const char *program, struct peer *p)
{
    int in[2], out[2];
    if (pipe(in)) return false;
    if (pipe(out)) {
        close(in[0]);
        close(in[1]);
        return false;
    }
    p->pid = fork();
    if (!p->pid) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        for (int i = 0; i < 2; i++) {
            close(in[i]);
            close(out[i]);
        }
        signal(SIGPIPE, SIG_DFL);
        execlp(python(), python(), "-c", program, (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    p->to = in[1];
    p->from = out[0];
    if (p->pid > 0) return true;
    p->pid = 0;
    close(p->to);
    close(p->from);
    return false;
}

/* What cannot be written is told by the line that follows, or its absence. */
static void put(struct peer *p, const void *data, size_t n)
{
    for (const char *at = data; n;) {
        ssize_t k = write(p->to, at, n);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return;
        at += k;
        n -= (size_t)k;
    }
}

static bool get_line(struct peer *p, char *out, size_t size)
{
    for (size_t n = 0; n + 1 < size;) {
        struct pollfd f = {p->from, POLLIN, 0};
        int ready = poll(&f, 1, WAIT_MS);
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0 || read(p->from, out + n, 1) != 1) return false;
        if (out[n] == '\n') {
            out[n] = 0;
            return true;
        }
        n++;
    }
    return false;
}

static void describe(cJSON *list, const kiln_client_tensor *t)
{
    cJSON *o = cJSON_CreateObject(), *shape;
    cJSON_AddStringToObject(o, "name", t->name);
    cJSON_AddStringToObject(o, "dtype", t->dtype);
    cJSON_AddNumberToObject(o, "bytes", (double)t->bytes);
    shape = cJSON_AddArrayToObject(o, "shape");
    for (int i = 0; i < t->rank; i++) cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)t->shape[i]));
    cJSON_AddItemToArray(list, o);
}

static bool ask(const struct cli *c, const struct model_run *r, const char *model, struct peer *p)
{
    cJSON *o = cJSON_CreateObject(), *in, *out;
    int nin = kiln_model_inputs(r->model), nout = kiln_model_outputs(r->model);
    cJSON_AddStringToObject(o, "model", model);
    cJSON_AddNumberToObject(o, "threads", c->threads);
    in = cJSON_AddArrayToObject(o, "inputs");
    out = cJSON_AddArrayToObject(o, "outputs");
    for (int i = 0; i < nin; i++) describe(in, kiln_model_input(r->model, i));
    for (int i = 0; i < nout; i++) describe(out, kiln_model_output(r->model, i));
    char *text = cJSON_PrintUnformatted(o);
    cJSON_Delete(o);
    if (!text) return false;
    put(p, text, strlen(text));
    put(p, "\n", 1);
    free(text);
    for (int i = 0; i < nin; i++) put(p, r->inputs[i], (size_t)kiln_model_input(r->model, i)->bytes);
    for (int i = 0; i < nout; i++) put(p, r->outputs[i], (size_t)kiln_model_output(r->model, i)->bytes);
    return true;
}

int peer_open(struct cli *c, const struct model_run *r, const char *model, struct peer *p)
{
    char line[1024] = "";
    const char *program = NULL;
    *p = (struct peer){0};
    for (size_t i = 0; i < sizeof peers / sizeof *peers; i++)
        if (!strcmp(peers[i].name, c->against)) program = peers[i].program;
    if (!program) return cli_fail(USAGE, "--against %s: onnxruntime is right", c->against);
    signal(SIGPIPE, SIG_IGN);
    if (!start(program, p)) return cli_fail(SOFTWARE, "no process can be started");
    if (!ask(c, r, model, p)) return cli_fail(SOFTWARE, "out of memory");
    if (get_line(p, line, sizeof line) && sscanf(line, "ok %63s %lf", p->version, &p->difference) == 2) return OK;
    bool missing = strstr(line, "ModuleNotFoundError") || !*line;
    cli_fail(UNAVAILABLE, "%s with %s does not run the model: %s", c->against, python(), !strncmp(line, "no ", 3) ? line + 3 : "it gave no answer");
    if (missing) fprintf(stderr, "      KILN_PYTHON names a Python that has onnxruntime (pip install onnxruntime)\n");
    return UNAVAILABLE;
}

int peer_time(struct peer *p, double *us)
{
    char line[64], *end;
    put(p, "\n", 1);
    bool good = get_line(p, line, sizeof line);
    *us = good ? strtod(line, &end) : 0;
    return good && end != line && *us > 0 ? OK : cli_fail(SOFTWARE, "the other runtime ended");
}

void peer_close(struct peer *p)
{
    if (!p->pid) return;
    close(p->to);
    close(p->from);
    kill(p->pid, SIGTERM);
    waitpid(p->pid, NULL, 0);
    p->pid = 0;
}
