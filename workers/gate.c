/* Static gate of CUDA kernels: the assembler's report, read and judged. */
#include "workers/gate.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const long long MOST = 1LL << 60;

__attribute__((format(printf, 2, 3))) static void refuse(gate_report *g, const char *fmt, ...)
{
    va_list ap;
    if (g->why[0]) {
        return;
    }
    va_start(ap, fmt);
    vsnprintf(g->why, sizeof g->why, fmt, ap);
    va_end(ap);
}

/* The number in front of `unit`, the first time that stands between text and end, MOST at most so that some can be added; 0. */
static int64_t before(const char *text, const char *end, const char *unit)
{
    const char *at = strstr(text, unit);
    if (at == NULL || at >= end) {
        return 0;
    }
    while (at > text && at[-1] == ' ') {
        at--;
    }
    while (at > text && at[-1] >= '0' && at[-1] <= '9') {
        at--;
    }
    long long n = strtoll(at, NULL, 10);
    return n < MOST ? n : MOST;
}

const char *gate_map(const kiln_tensor_map *m)
{
    int64_t bytes = strcmp(m->dtype, "u8") == 0 ? 1 : strcmp(m->dtype, "f16") == 0 || strcmp(m->dtype, "bf16") == 0 ? 2 : 4;
    if (m->rank < 1 || m->rank > 5 || m->swizzle < 0 || m->swizzle > 3) {
        return "a tensor map of no 1 to 5 dimensions, or of no swizzle that there is";
    }
    for (int d = 0; d < m->rank; d++) {
        if (m->dims[d] < 1 || m->dims[d] > INT64_C(1) << 32 || m->box[d] < 1 || m->box[d] > 256) {
            return "a tensor map whose dimensions or box are out of range";
        }
        if (d > 0 && (m->strides[d - 1] % 16 != 0 || m->strides[d - 1] < 1 || m->strides[d - 1] >= INT64_C(1) << 40)) {
            return "a tensor map with a stride that is no multiple of 16 bytes below 2^40";
        }
    }
    for (int d = 0; d < 2 && m->pixels; d++) {
        bool corners = m->lower[d] >= -128 && m->lower[d] < 128 && m->upper[d] >= -128 && m->upper[d] < 128;
        if (m->rank != 4 || m->pixels > 1024 || !corners || m->steps[d] < 1 || m->steps[d] > 8) {
            return "a tensor map of windows of no 4 dimensions, or with corners, steps or pixels out of range";
        }
    }
    int64_t row = m->box[0] * bytes;
    if (row % 16 != 0 || (m->swizzle > 0 && row > 16 << m->swizzle)) {
        return "a tensor map with boxes whose rows are no multiple of 16 bytes, or longer than the swizzle";
    }
    return NULL;
}

const char *gate_launch(const kiln_launch *l)
{
    int given = l->threads > 0 ? 65536 / l->threads / 8 * 8 : 0, others = l->threads - 128;
    for (int i = 0; i < l->nargs && l->maps != NULL; i++) {
        const char *why = l->maps[i].rank != 0 ? gate_map(&l->maps[i]) : NULL;
        if (why != NULL) {
            return why;
        }
    }
    if (l->cluster > 8 || (l->cluster > 1 && l->grid % l->cluster != 0)) {
        return "a cluster of more than 8 blocks, or a grid that is no multiple of it";
    }
    if (l->computing == 0) {
        return NULL;
    }
    bool steps = l->asking % 8 == 0 && l->computing % 8 == 0 && l->asking >= 24 && l->computing <= 256;
    if (!steps || l->asking > given || l->computing < given || l->asking * 128 + l->computing * others > given * l->threads) {
        return "roles that take more registers together than the launch gives, or no multiples of 8 from 24 to 256";
    }
    return NULL;
}

/* grain: what the assembler rounds the static part up to. Beside a function whose dynamic array is aligned to 1024 it does so for every other. */
static void function(const char *text, const char *end, const kiln_launch *l, int64_t grain, gate_report *g)
{
    int64_t fixed = l->shared_bytes - l->dynamic_shared_bytes;
    int64_t spills = before(text, end, "bytes spill stores") + before(text, end, "bytes spill loads");
    int64_t stack = before(text, end, "bytes stack frame"), shared = before(text, end, "bytes smem"), registers = before(text, end, "registers");
    g->functions++;
    g->spill_bytes = spills > g->spill_bytes ? spills : g->spill_bytes;
    g->stack_bytes = stack > g->stack_bytes ? stack : g->stack_bytes;
    g->static_shared_bytes = shared > g->static_shared_bytes ? shared : g->static_shared_bytes;
    g->registers = registers > g->registers ? (int)registers : g->registers;
    if (spills > 0) {
        refuse(g, "%s: %lld bytes of registers are spilled to memory", l->entry, (long long)spills);
    }
    if (shared > (fixed + grain - 1) / grain * grain) {
        refuse(g, "%s: %lld bytes of static shared memory, its launch says %lld", l->entry, (long long)shared, (long long)fixed);
    }
}

/* Every launch of a kernel: what its rules say, and what the assembler reports of its function. */
static void launches(const char *log, const kiln_kernel *k, int64_t grain, gate_report *g)
{
    static const char mark[] = "Compiling entry function '";
    for (int i = 0; i < k->nlaunches; i++) {
        const char *at = log, *why = gate_launch(&k->launches[i]);
        if (why != NULL) {
            refuse(g, "%s: %s", k->launches[i].entry, why);
        }
        size_t n = strlen(k->launches[i].entry);
        while ((at = strstr(at, mark)) != NULL) {
            at += sizeof mark - 1;
            if (strncmp(at, k->launches[i].entry, n) == 0 && at[n] == '\'') {
                break;
            }
        }
        if (at == NULL) {
            refuse(g, "the assembler does not report on %s", k->launches[i].entry);
            continue;
        }
        const char *end = strstr(at, mark);
        function(at, end != NULL ? end : at + strlen(at), &k->launches[i], grain, g);
    }
}

static bool dynamic(const kiln_kernel *k)
{
    bool any = false;
    for (int i = 0; i < k->nlaunches; i++) {
        any = any || k->launches[i].dynamic_shared_bytes > 0;
    }
    return any;
}

void gate_read(const char *log, const kiln_kernel *k, gate_report *g)
{
    *g = (gate_report){0};
    if (strstr(log, "(C75") != NULL) {
        refuse(g, "the assembler serialises tensor instructions: %.120s", strstr(log, "(C75"));
    }
    int64_t grain = dynamic(k) || (k->fallback != NULL && dynamic(k->fallback)) ? 1024 : 1;
    launches(log, k, grain, g);
    if (k->fallback != NULL) {
        launches(log, k->fallback, grain, g);
    }
}

void gate_text(const gate_report *g, char *json, size_t size)
{
    snprintf(json, size,
             "{\"how\":\"\",\"assembler\":{\"functions\":%d,\"registers\":%d,\"stack_bytes\":%lld,\"spill_bytes\":%lld,"
             "\"static_shared_bytes\":%lld}}",
             g->functions, g->registers, (long long)g->stack_bytes, (long long)g->spill_bytes, (long long)g->static_shared_bytes);
}
