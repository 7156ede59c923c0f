/* Static gate of CUDA kernels: the assembler's report, read and judged. */
#include "workers/gate.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* The number in front of `unit`, the first time that stands between text and end; 0. */
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
    return strtoll(at, NULL, 10);
}

static void function(const char *text, const char *end, const kiln_launch *l, gate_report *g)
{
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
    if (shared > l->shared_bytes - l->dynamic_shared_bytes) {
        refuse(g, "%s: %lld bytes of static shared memory, its launch says %lld", l->entry, (long long)shared,
               (long long)(l->shared_bytes - l->dynamic_shared_bytes));
    }
}

void gate_read(const char *log, const kiln_kernel *k, gate_report *g)
{
    static const char mark[] = "Compiling entry function '";
    *g = (gate_report){0};
    if (strstr(log, "(C751") != NULL) {
        refuse(g, "the assembler serialises tensor instructions: %.120s", strstr(log, "(C751"));
    }
    for (int i = 0; i < k->nlaunches; i++) {
        const char *at = log;
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
        function(at, end != NULL ? end : at + strlen(at), &k->launches[i], g);
    }
}

void gate_text(const gate_report *g, char *json, size_t size)
{
    snprintf(json, size,
             "{\"how\":\"\",\"assembler\":{\"functions\":%d,\"registers\":%d,\"stack_bytes\":%lld,\"spill_bytes\":%lld,"
             "\"static_shared_bytes\":%lld}}",
             g->functions, g->registers, (long long)g->stack_bytes, (long long)g->spill_bytes, (long long)g->static_shared_bytes);
}
