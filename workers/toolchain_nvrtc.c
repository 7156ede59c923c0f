/* CUDA C text to PTX and cubin, through NVRTC in a child: the library is never loaded here, and a hang of it is killed there. */
#include "workers/toolchain.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARTIFACT_MAX = 64 << 20 };

/* "sm_90a": 90, or 0. The variants with a letter belong to NVRTC's base number. */
static int arch_number(const char *arch)
{
    int n = 0, used = 0;
    char letter = 0;
    if (sscanf(arch, "sm_%4d%n%c", &n, &used, &letter) < 1 || n < 10) { return 0; }
    size_t len = strlen(arch);
    return len == (size_t)used || (len == (size_t)used + 1 && (letter == 'a' || letter == 'f')) ? n : 0;
}

static void list_archs(const worker_tools *t, char *out, size_t n)
{
    size_t used = 0;
    out[0] = 0;
    for (int i = 0; i < t->nnvrtc_archs && used < n; i++) {
        used += (size_t)snprintf(out + used, n - used, "%ssm_%d", i ? ", " : "", t->nvrtc_archs[i]);
    }
}

static bool available(const worker_tools *t, const char *arch, worker_error *e)
{
    char list[600];
    int number = arch_number(arch);
    if (!t->nvrtc[0]) {
        return toolchain_fail(e, KILN_UNSUPPORTED, "toolchain-missing", "no NVRTC here: only source can be had. %s", t->nvrtc_why);
    }
    if (number == 0) {
        return toolchain_fail(e, KILN_HWSPEC, "compile-failed", "\"%.40s\" is not an architecture like sm_90 or sm_90a", arch);
    }
    for (int i = 0; i < t->nnvrtc_archs; i++) {
        if (t->nvrtc_archs[i] == number) { return true; }
    }
    list_archs(t, list, sizeof list);
    return toolchain_fail(e, KILN_UNSUPPORTED, "toolchain-missing",
                          "NVRTC %s does not make code for %s: only source can be had. It supports %s", t->nvrtc_version, arch, list);
}

static bool fetch(const char *dir, const char *name, const char *kind, bool want, worker_blob *b)
{
    if (want) { snprintf(b->kind, sizeof b->kind, "%s", kind); }
    return !want || child_dir_get(dir, name, ARTIFACT_MAX, &b->p, &b->n);
}

static bool collect(const char *dir, bool want_ptx, bool want_cubin, worker_blob *ptx, worker_blob *cubin, worker_error *e)
{
    worker_blob p = {0}, c = {0};
    if (!fetch(dir, "kernel.ptx", "ptx", want_ptx, &p) || !fetch(dir, "kernel.cubin", "cubin", want_cubin, &c)) {
        free(p.p);
        return toolchain_fail(e, KILN_INTERNAL, "compile-failed", "NVRTC left no %s", want_ptx && p.p == NULL ? "PTX" : "cubin");
    }
    if (want_ptx) { *ptx = p; }
    if (want_cubin) { *cubin = c; }
    return true;
}

bool worker_compile_cuda(const worker_tools *t, kiln_bytes source, const char *arch, bool want_ptx, bool want_cubin, int deadline_ms,
                         worker_blob *ptx, worker_blob *cubin, char **log, worker_error *e)
{
    char dir[CHILD_DIR_BYTES];
    child_result r;
    const char *argv[] = {"nvrtc", t->nvrtc, "kernel.cu", arch, want_cubin ? "cubin" : "ptx", NULL};
    /* NVRTC maps over 100 MB before it does anything. */
    child_limits limits = {.deadline_ms = deadline_ms, .address_bytes = INT64_C(8) << 30, .file_bytes = ARTIFACT_MAX, .processes = 0};
    if (!available(t, arch, e) || !toolchain_open(t, source, "kernel.cu", dir, e)) { return false; }
    bool ok = child_run(t, dir, argv, &limits, &r);
    if (!ok) {
        toolchain_fail(e, KILN_MEMORY, "compile-failed", "%s", r.why);
    } else {
        ok = toolchain_judge(&r, "NVRTC", r.out_n ? r.out : r.err, deadline_ms, e) && collect(dir, want_ptx, want_cubin, ptx, cubin, e);
    }
    if (ok && log != NULL) {
        *log = r.out;
        r.out = NULL;
    }
    child_result_free(&r);
    child_dir_remove(dir);
    return ok;
}
