/* Emulation of kernels this host cannot run: CUDA text compiled as C and run as fibers, C text compiled without the target's flags. */
#include "workers/emu.h"
#include "workers/emu_traffic.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COMPILE_MS = 30000, MAP_TEXT = 700 };

/* Blanks `extern "C"`, which C does not know; keeps the length, so positions stay true. */
static void drop_linkage(char *s, size_t n)
{
    static const char mark[] = "extern \"C\"";
    for (size_t i = 0; i + sizeof mark - 1 <= n; i++) {
        if (memcmp(s + i, mark, sizeof mark - 1) == 0) {
            memset(s + i, ' ', sizeof mark - 1);
        }
    }
}

/* A function that makes the argument of a tensor map from its tensor's address. */
static size_t put_map(char *s, size_t cap, const kiln_tensor_map *m, int launch, int arg)
{
    size_t n = 0;
    verify_dtype t;
    int bytes = m->rank && verify_dtype_find(m->dtype, &t) ? verify_dtype_bytes(t) : 1;
    if (!m->rank) {
        return 0;
    }
    n += (size_t)snprintf(s, cap, "\nstatic const emu_map emu_map_of_%d_%d = {%d, %d, %d", launch, arg, m->rank, bytes, m->swizzle);
    for (int list = 0; list < 3; list++) {
        for (int d = 0; d < 5; d++) {
            long long x = d >= m->rank ? 0 : list == 0 ? m->box[d] : list == 1 ? m->dims[d] : d > 0 ? m->strides[d - 1] : 0;
            n += (size_t)snprintf(s + n, cap - n, "%s%lld", d ? ", " : ", {", x);
        }
        n += (size_t)snprintf(s + n, cap - n, "}");
    }
    n += (size_t)snprintf(s + n, cap - n, ", {%d, %d, %d, %d, %d, %d, %d}", m->pixels, m->lower[0], m->lower[1], m->upper[0], m->upper[1],
                          m->steps[0], m->steps[1]);
    n += (size_t)snprintf(s + n, cap - n, "};\nstatic k_map emu_map_%d_%d(const void *at)\n{\n    k_map m = {{(unsigned long long)at, "
                          "(unsigned long long)&emu_map_of_%d_%d}};\n    return m;\n}\n", launch, arg, launch, arg);
    return n;
}

char *emu_text(const kiln_kernel *k, bool traffic, size_t *n)
{
    const char *hooks = traffic ? emu_traffic_text : "";
    size_t head = strlen(emu_cuda_text) + strlen(hooks), cap = head + k->source.n + 64, at;
    for (int i = 0; i < k->nlaunches; i++) {
        cap += 160 + (8 + (k->launches[i].maps ? MAP_TEXT : 0)) * (size_t)k->launches[i].nargs + strlen(k->launches[i].entry);
    }
    char *s = malloc(cap);
    if (s == NULL) {
        return NULL;
    }
    at = (size_t)snprintf(s, cap, "%s%s\n", emu_cuda_text, hooks);
    memcpy(s + at, k->source.p, k->source.n);
    drop_linkage(s + at, k->source.n);
    at += k->source.n;
    for (int i = 0; i < k->nlaunches; i++) {
        const kiln_launch *l = &k->launches[i];
        for (int j = 0; j < l->nargs && l->maps; j++) {
            at += put_map(s + at, cap - at, &l->maps[j], i, j);
        }
        at += (size_t)snprintf(s + at, cap - at, "\nvoid emu_call_%d(void **a) { (void)a; %s(", i, l->entry);
        for (int j = 0; j < l->nargs; j++) {
            bool map = l->maps && l->maps[j].rank;
            at += (size_t)snprintf(s + at, cap - at, map ? "%semu_map_%d_%d(a[%d])" : "%sa[%d]", j ? ", " : "", map ? i : j, j, j);
        }
        at += (size_t)snprintf(s + at, cap - at, "); }\n");
    }
    *n = at;
    return s;
}

bool emu_order(const kiln_kernel *k, int nin, int launch, int32_t *order)
{
    const kiln_launch *l = &k->launches[launch];
    int reads = 0, writes = 0, lin = kiln_program_inputs(l->program), lout = kiln_program_outputs(l->program);
    for (int i = 0; i < l->nargs; i++) {
        bool known = l->args[i] < nin;
        for (int m = 0; m < launch && !known; m++) {
            for (int q = 0; q < k->launches[m].nargs; q++) {
                known = known || k->launches[m].args[q] == l->args[i];
            }
        }
        order[i] = known && i != l->again ? reads++ : lin + writes++;
    }
    if (l->again >= 0) {
        order[l->nargs] = reads++; /* no argument: what the array holds before */
    }
    return reads == lin && writes == lout;
}

static bool emulate_launch(const worker_tools *t, const kiln_program *p, const kiln_kernel *k, int i, const worker_blob *so, int budget_ms,
                           bool traffic, worker_verdict *v, worker_error *e)
{
    verify_job j;
    char why[300];
    const kiln_launch *l = &k->launches[i];
    if (verify_job_of(l->program, &j, why, sizeof why) != VERIFY_FITS) {
        return verify_refused(v, "launch %d: %s", i, why);
    }
    if (!emu_order(k, kiln_program_inputs(p), i, j.order)) {
        return verify_refused(v, "launch %d: its arguments do not fit its program", i);
    }
    j.mode = VERIFY_BLOCKS;
    j.launch = i;
    j.traffic = traffic;
    j.grid = l->grid;
    j.launch_threads = l->threads;
    j.cluster = l->cluster;
    j.again = l->again >= 0 ? j.order[l->again] - j.nin : -1;
    j.budget_ms = budget_ms;
    for (int a = j.nin; a < j.nin + j.nout; a++) {
        v->total += j.args[a].elems;
    }
    bool ok = verify_execute(t, l->program, &j, so, budget_ms, v, e);
    if (ok && !v->ok && k->nlaunches > 1) {
        char detail[sizeof v->detail];
        snprintf(detail, sizeof detail, "launch %d: %.480s", i, v->detail);
        memcpy(v->detail, detail, sizeof detail);
    }
    return ok;
}

static bool emulate_cuda(const worker_tools *t, const kiln_program *p, const kiln_kernel *k, int budget_ms, bool traffic, worker_verdict *v,
                         worker_error *e)
{
    static const char *const flags[] = {"-O1", "-ffp-contract=off", "-fno-tree-sra", "-fsanitize=kernel-address"};
    int nflags = (int)(sizeof flags / sizeof *flags) - (traffic ? 0 : 2);
    worker_blob so = {0};
    size_t n = 0;
    char *text = emu_text(k, traffic, &n);
    if (text == NULL) {
        return verify_refused(v, "out of memory");
    }
    bool ok = worker_compile_c(t, (kiln_bytes){text, n}, flags, nflags, COMPILE_MS, &so, e);
    free(text);
    if (!ok) {
        return verify_refused(v, "the text does not compile for the emulator: %.400s", e->message);
    }
    for (int i = 0; i < k->nlaunches && ok && v->ok; i++) {
        ok = emulate_launch(t, p, k, i, &so, budget_ms / k->nlaunches, traffic, v, e);
    }
    free(so.p);
    return ok;
}

bool worker_emulate(const worker_tools *t, const kiln_program *p, const kiln_kernel *k, int budget_ms, worker_verdict *v, worker_error *e)
{
    double start = verify_now_ms();
    bool ok;
    *v = (worker_verdict){.ok = true, .how = "emulated", .all_written = true};
    *e = (worker_error){0};
    if (strcmp(k->language, "cuda") == 0) {
        ok = emulate_cuda(t, p, k, budget_ms, false, v, e);
        if (ok && v->ok && k->fallback) {
            ok = emulate_cuda(t, p, k->fallback, budget_ms / 4, false, v, e);
        }
    } else {
        worker_blob so = {0};
        if (!worker_compile_c(t, k->source, NULL, 0, COMPILE_MS, &so, e)) {
            return verify_refused(v, "the text does not compile for this host: %.400s", e->message);
        }
        ok = worker_verify_cpu(t, p, k, &so, budget_ms, v, e);
        if (v->how[0]) {
            v->how = "emulated";
        }
        free(so.p);
    }
    v->seconds = (verify_now_ms() - start) / 1e3;
    return ok;
}

bool worker_emulate_traffic(const worker_tools *t, const kiln_program *p, const kiln_kernel *k, int budget_ms, worker_verdict *v, worker_error *e)
{
    double start = verify_now_ms();
    *v = (worker_verdict){.ok = true, .how = "emulated", .all_written = true};
    *e = (worker_error){0};
    if (strcmp(k->language, "cuda") != 0) {
        return verify_refused(v, "traffic is counted of CUDA text");
    }
    bool ok = emulate_cuda(t, p, k, budget_ms, true, v, e);
    v->seconds = (verify_now_ms() - start) / 1e3;
    return ok;
}
