/* The ONNX backend node tests: every model in a folder (written by onnx_nodes.py) is read, settled and run node by node, and its outputs
 * are compared with those that the onnx package gives. usage: onnx-nodes DIR [-v] [-l LIST] [NAME...] Without -l: runs by the reference
 * interpreter. Tests whose model Kiln refuses are counted as unsupported, by reason; a wrong output, or a refusal that is an error of ours,
 * fails. -v prints every test; -l writes the list of unsupported tests for the documents. */
#include "onnx/onnx.h"
#include "tests/golden/onnx_kernel.h"
#include "tests/arena.h"
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

typedef struct file {
    char *p;
    size_t n;
} file;

static bool read_file(const char *dir, const char *name, file *out)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "rb");
    if (!f) return false;
    struct stat s;
    fstat(fileno(f), &s);
    out->n = (size_t)s.st_size;
    out->p = malloc(out->n + 1);
    bool good = fread(out->p, 1, out->n, f) == out->n;
    out->p[out->n] = 0;
    fclose(f);
    return good;
}

/* ---- running a settled graph by the reference interpreter ---- */

static double *doubles(const kn_value *v)
{
    int64_t n = kn_value_elems(v);
    double *x = calloc((size_t)n + 1, sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = kn_value_double(v, i);
    return x;
}

typedef struct call {
    double *in[KN_OP_INPUTS];
} call;
static double read_in(void *user, int input, int64_t index) { return ((call *)user)->in[input][index]; }

/* What a kernel would have stored. */
static double stored(enum kn_dtype t, double x)
{
    uint8_t bytes[8];
    kn_data data = {.bytes = bytes, .n = 8};
    kn_value v = {.dtype = t, .data = &data};
    kn_element_compute(t, bytes, x);
    return kn_value_double(&v, 0);
}

static kiln_status run_node(const kn_graph *g, const kn_node *n, double **values, kiln_diag *d)
{
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    kn_program *p = NULL;
    kiln_ref *ref = NULL;
    call c = {{0}};
    int k = 0;
    for (int i = 0; i < n->ninputs; i++)
        if (n->inputs[i] >= 0) c.in[k++] = values[n->inputs[i]];
    kiln_status s = kn_node_program(a, g, n, &p, d);
    if (s == KILN_OK) s = kiln_ref_open(a, p, read_in, &c, &ref, d);
    const kn_value *y = &g->values[n->outputs[0]];
    int64_t elems = kn_value_elems(y);
    double *out = values[n->outputs[0]] = calloc((size_t)elems + 1, sizeof *out), scale;
    for (int64_t i = 0; s == KILN_OK && i < elems; i++) {
        s = kiln_ref_at(ref, 0, i, &out[i], &scale);
        out[i] = stored(y->dtype, out[i]);
    }
    kiln_arena_close(a);
    return s;
}

/* ---- one test ---- */

enum verdict { PASS, UNSUPPORTED, FAIL };
typedef struct test {
    kernels *k; /* NULL: the reference interpreter */
    const char *dir;
    char why[700];
    double rtol, atol;
    kiln_arena *a;
    file files[64];
    int nfiles;
} test;

static enum verdict say(test *t, enum verdict v, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(t->why, sizeof t->why, fmt, ap);
    va_end(ap);
    return v;
}

static bool load(test *t, const char *name, file *f)
{
    if (t->nfiles == 64 || !read_file(t->dir, name, f)) return false;
    t->files[t->nfiles++] = *f;
    return true;
}

static bool read_tensor(test *t, const char *kind, int k, kn_value *v)
{
    char name[32];
    file f;
    kiln_diag d = {0};
    snprintf(name, sizeof name, "%s_%d.pb", kind, k);
    return load(t, name, &f) && kn_onnx_tensor(t->a, (kiln_bytes){f.p, f.n}, v, &d) == KILN_OK;
}

/* Whether bytes come from a rounding of fractions, which the interpreter computes in double: ties may fall the other way. */
static bool rounds(const kn_graph *g)
{
    for (int i = 0; i < g->nnodes; i++)
        if (strstr(g->nodes[i].op, "Quantize") || !strcmp(g->nodes[i].op, "Round")) return true;
    return false;
}

static enum verdict compare(test *t, const kn_graph *g, int k, const kn_value *got, const double *x, const kn_value *want)
{
    int64_t n = kn_value_elems(want);
    double unit = want->dtype == KN_BF16 ? 0x1p-6 : want->dtype == KN_F16 ? 0x1p-9 : 0; /* halves may be two units off */
    double rtol = t->rtol > unit ? t->rtol : unit;
    double atol = kn_dtype_bytes(want->dtype) == 1 && want->dtype != KN_BOOL && rounds(g) ? 1 : t->atol;
    bool same = got->rank == want->rank && got->dtype == want->dtype;
    for (int i = 0; same && i < want->rank; i++) same = got->shape[i] == want->shape[i];
    if (!same)
        return say(t, FAIL, "output %d has another shape or dtype: rank %d %s, want rank %d %s", k, got->rank, kn_dtype_text(got->dtype),
                   want->rank, kn_dtype_text(want->dtype));
    for (int64_t i = 0; i < n; i++) {
        double w = kn_value_double(want, i);
        bool good = x[i] == w || (isnan(x[i]) && isnan(w)) || fabs(x[i] - w) <= atol + rtol * fabs(w);
        if (!good) return say(t, FAIL, "output %d[%lld] is %.9g, want %.9g", k, (long long)i, x[i], w);
    }
    return PASS;
}

static enum verdict run_graph(test *t, const kn_graph *g)
{
    double **values = calloc((size_t)g->nvalues + 1, sizeof *values);
    enum verdict v = PASS;
    kiln_diag d = {0};
    for (int i = 0; i < g->nvalues; i++)
        if (g->values[i].data) values[i] = doubles(&g->values[i]);
    for (int k = 0; v == PASS && k < g->ninputs; k++) {
        kn_value in = {0};
        if (!read_tensor(t, "in", k, &in))
            v = say(t, UNSUPPORTED, "input %d has a dtype that Kiln lacks", k);
        else if (kn_value_elems(&in) != kn_value_elems(&g->values[g->inputs[k]]))
            v = say(t, FAIL, "input %d has another shape than its model says", k);
        else
            values[g->inputs[k]] = doubles(&in);
    }
    for (int i = 0; v == PASS && i < g->nnodes; i++)
        if (t->k && !run_kernel(t->k, g, &g->nodes[i], values, d.message, sizeof d.message))
            v = say(t, FAIL, "%s: %s", g->nodes[i].op, d.message);
        else if (!t->k && run_node(g, &g->nodes[i], values, &d) != KILN_OK)
            v = say(t, FAIL, "%s: %s", d.pointer, d.message);
    for (int k = 0; v == PASS && k < g->noutputs; k++) {
        kn_value want = {0};
        if (!read_tensor(t, "out", k, &want))
            v = say(t, UNSUPPORTED, "output %d has a dtype that Kiln lacks", k);
        else
            v = compare(t, g, k, &g->values[g->outputs[k]], values[g->outputs[k]], &want);
    }
    for (int i = 0; i < g->nvalues; i++) free(values[i]);
    free(values);
    return v;
}

/* Inputs that shape the result are fed as constants: that is what they are in a model. Which they are shows when settling asks for them. */
static void feed(test *t, kn_graph *raw)
{
    int kept = 0;
    for (int i = 0; i < raw->ninputs; i++) {
        kn_value v = {0}, *at = &raw->values[raw->inputs[i]];
        if (read_tensor(t, "in", i, &v)) {
            at->data = v.data;
            at->dtype = v.dtype;
            at->typed = at->shaped = true;
            at->rank = v.rank;
            memcpy(at->shape, v.shape, sizeof at->shape);
        } else {
            raw->inputs[kept++] = raw->inputs[i];
        }
    }
    raw->ninputs = kept;
}

static enum verdict run_test(test *t)
{
    file model, other;
    kiln_diag d = {0};
    kn_graph *raw = NULL, *g = NULL;
    t->rtol = 1e-3, t->atol = 1e-7;
    if (load(t, "tolerance", &other)) sscanf(other.p, "%lf %lf", &t->rtol, &t->atol);
    if (!load(t, "model.onnx", &model)) return say(t, FAIL, "no model");
    kiln_bytes bytes = {model.p, model.n};
    kiln_status s = kn_onnx_read(t->a, bytes, NULL, &raw, &d);
    if (s == KILN_OK) s = kn_graph_settle(t->a, raw, NULL, &g, &d);
    if (s != KILN_OK && raw) {
        if ((s = kn_onnx_read(t->a, bytes, NULL, &raw, &d)) == KILN_OK) {
            feed(t, raw);
            s = kn_graph_settle(t->a, raw, NULL, &g, &d);
        }
    }
    if (s == KILN_OK && load(t, "other", &other)) return say(t, UNSUPPORTED, "sequences, maps or optionals");
    if (s == KILN_OK) return run_graph(t, g);
    if (kiln_status_http(s) == 500) return say(t, FAIL, "%s: %s", d.pointer, d.message);
    return say(t, UNSUPPORTED, "%s: %s", kiln_status_slug(s), d.message);
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static int names_of(const char *dir, char **names, int cap)
{
    DIR *d = opendir(dir);
    int n = 0;
    for (struct dirent *e; d && n < cap && (e = readdir(d));)
        if (e->d_name[0] != '.') names[n++] = strdup(e->d_name);
    if (d) closedir(d);
    qsort(names, (size_t)n, sizeof *names, by_name);
    return n;
}

int main(int argc, char **argv)
{
    static char *names[4096];
    const char *list = NULL;
    kernels compiled = {0};
    bool verbose = false, chosen = false;
    int counts[3] = {0}, n = argc > 1 ? names_of(argv[1], names, 4096) : 0;
    for (int k = 2; k < argc; k++) {
        if (!strcmp(argv[k], "-v"))
            verbose = true;
        else if (!strcmp(argv[k], "-l") && k + 1 < argc)
            list = argv[++k];
        else if (!strcmp(argv[k], "-c") && k + 2 < argc)
            compiled = (kernels){.dir = argv[k + 1], .hwspec = argv[k + 2]}, k += 2;
        else
            chosen = true;
    }
    FILE *out = list ? fopen(list, "w") : NULL;
    for (int i = 0; i < n; i++) {
        bool wanted = !chosen;
        for (int k = 2; k < argc; k++) wanted |= !strcmp(argv[k], names[i]);
        if (wanted) {
            char dir[1024];
            test t = {.k = compiled.dir ? &compiled : NULL, .dir = dir, .a = kiln_arena_open(&(kiln_host){NULL, mem, NULL})};
            snprintf(dir, sizeof dir, "%s/%s", argv[1], names[i]);
            enum verdict v = run_test(&t);
            counts[v]++;
            if (v == FAIL || verbose)
                printf("%s %s%s%s\n", v == PASS ? "pass" : v == FAIL ? "FAIL" : "unsupported", names[i], *t.why ? ": " : "", t.why);
            if (v == UNSUPPORTED && out) fprintf(out, "%s: %s\n", names[i], t.why);
            for (int k = 0; k < t.nfiles; k++) free(t.files[k].p);
            kiln_arena_close(t.a);
        }
        free(names[i]);
    }
    if (out) fclose(out);
    printf("# ONNX node tests: %d passed, %d unsupported, %d failed\n", counts[PASS], counts[UNSUPPORTED], counts[FAIL]);
    if (compiled.dir) printf("# %d kernels compiled, %d used again\n", compiled.compiled, compiled.reused);
    return counts[FAIL] != 0 || counts[PASS] == 0;
}
