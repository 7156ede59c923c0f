/* One node of a settled graph as a kernel on this machine. */
#include "tests/golden/onnx_kernel.h"
#include "tests/arena.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef int32_t (*entry_fn)(const void *const *, void *const *, void *, const void *);
typedef int64_t (*workspace_fn)(int32_t);
typedef struct job {
    kernels *k;
    kiln_arena *a;
    kn_program *p;
    kiln_hw *hw;
    char *why;
    size_t cap;
    int in[KILN_MAX_TENSORS], out[KILN_MAX_TENSORS];
} job;

static bool fail(job *j, const char *what, const char *detail)
{
    snprintf(j->why, j->cap, "%s: %.500s", what, detail);
    return false;
}

static bool device(job *j)
{
    static char text[1 << 16];
    kiln_diag d = {0};
    FILE *f = fopen(j->k->hwspec, "rb");
    if (!f) return fail(j, "hardware description", j->k->hwspec);
    size_t n = fread(text, 1, sizeof text, f);
    fclose(f);
    return kiln_hw_parse(j->a, (kiln_bytes){text, n}, &j->hw, &d) == KILN_OK || fail(j, "hardware description", d.message);
}

static bool build(job *j, const char *so)
{
    kiln_diag d = {0};
    kiln_candidates *list;
    kiln_kernel *kernel;
    char c[700], command[2400];
    const char *const *flags;
    if (kiln_construct(j->a, j->p, j->hw, "default", 1, &list, &d) != KILN_OK) return fail(j, "construct", d.message);
    if (kiln_generate(j->a, j->p, j->hw, list->c[0].trace, &kernel, &d) != KILN_OK) return fail(j, "generate", d.message);
    snprintf(c, sizeof c, "%s.c", so);
    FILE *f = fopen(c, "wb");
    if (!f) return fail(j, "write", c);
    fwrite(kernel->source.p, 1, kernel->source.n, f);
    fclose(f);
    int used = snprintf(command, sizeof command,
                        "cc -std=gnu11 -O1 -ffp-contract=fast -fno-math-errno -fno-trapping-math -fPIC -shared -w -Wno-psabi");
    int n = kiln_hw_flags(j->hw, &flags);
    for (int i = 0; i < n; i++) used += snprintf(command + used, sizeof command - (size_t)used, " %s", flags[i]);
    snprintf(command + used, sizeof command - (size_t)used, " '%s' -o '%s.new' -lm && mv '%s.new' '%s'", c, so, so, so);
    bool good = system(command) == 0;
    unlink(c);
    j->k->compiled++;
    return good || fail(j, "cc", command);
}

static void *packed(const kn_tensor *t, const double *x, int64_t n)
{
    size_t size = (size_t)kn_dtype_bytes(t->dtype), room = ((size_t)n * size + 127) / 64 * 64;
    uint8_t *p = aligned_alloc(64, room);
    memset(p, 0, room);
    for (int64_t i = 0; x && i < n; i++) kn_element_store(t->dtype, p + (size_t)i * size, x[i]);
    return p;
}

static int64_t elems_of(const kn_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->shape[i];
    return n;
}

static bool call(job *j, void *so, double *const *in, double *out)
{
    const char *name = dlsym(so, "kiln_entry");
    char symbol[128];
    if (!name) return fail(j, "no kiln_entry", "");
    entry_fn entry = (entry_fn)dlsym(so, name);
    snprintf(symbol, sizeof symbol, "%s_workspace", name);
    workspace_fn workspace = (workspace_fn)dlsym(so, symbol);
    if (!entry || !workspace) return fail(j, "symbols", symbol);
    const kn_tensor *y = &j->p->tensors[j->p->ninputs];
    int64_t n = elems_of(y), bytes = workspace(1);
    void *inputs[KILN_MAX_TENSORS], *output = packed(y, NULL, n), *scratch = aligned_alloc(64, ((size_t)bytes + 127) / 64 * 64);
    for (int i = 0; i < j->p->ninputs; i++) inputs[i] = packed(&j->p->tensors[i], in[j->in[i]], elems_of(&j->p->tensors[i]));
    int32_t rc = entry((const void *const *)inputs, &output, scratch, NULL);
    kn_data data = {.bytes = output, .n = (size_t)n * (size_t)kn_dtype_bytes(y->dtype)};
    kn_value v = {.dtype = y->dtype, .data = &data};
    for (int64_t i = 0; i < n; i++) out[i] = kn_value_double(&v, i);
    for (int i = 0; i < j->p->ninputs; i++) free(inputs[i]);
    free(output);
    free(scratch);
    return rc == 0 || fail(j, "the kernel", "returned an error");
}

static bool run(job *j, const kn_graph *g, const kn_node *n, double **values)
{
    kiln_diag d = {0};
    kn_program *p;
    kiln_keys keys;
    double *in[KN_OP_INPUTS];
    int k = 0;
    char path[600];
    if (kn_node_program(j->a, g, n, &p, &d) != KILN_OK || kn_canon(j->a, p, &j->p, j->in, j->out, &d) != KILN_OK)
        return fail(j, "program", d.message);
    if (!device(j)) return false;
    if (kiln_keys_of(j->a, j->p, j->hw, "default", &keys, &d) != KILN_OK) return fail(j, "keys", d.message);
    for (int i = 0; i < n->ninputs; i++)
        if (n->inputs[i] >= 0) in[k++] = values[n->inputs[i]];
    snprintf(path, sizeof path, "%s/%s.so", j->k->dir, keys.kernel);
    if (access(path, R_OK) == 0)
        j->k->reused++;
    else if (!build(j, path))
        return false;
    void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!so) return fail(j, "dlopen", dlerror());
    int64_t elems = kn_value_elems(&g->values[n->outputs[0]]);
    double *out = values[n->outputs[0]] = calloc((size_t)elems + 1, sizeof *out);
    bool good = call(j, so, in, out);
    dlclose(so);
    return good;
}

bool run_kernel(kernels *k, const kn_graph *g, const kn_node *n, double **values, char *why, size_t cap)
{
    job *j = calloc(1, sizeof *j);
    *j = (job){.k = k, .a = kiln_arena_open(&(kiln_host){NULL, mem, NULL}), .why = why, .cap = cap};
    bool good = run(j, g, n, values);
    kiln_arena_close(j->a);
    free(j);
    return good;
}
