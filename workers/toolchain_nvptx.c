/* CUDA C text to PTX through clang's NVPTX back end in a child: for devices that NVRTC has left behind (CUDA 13 begins at sm_75). The
 * driver makes the binary when it loads the PTX. */
#include "workers/toolchain.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const char toolchain_ptx_text[];
enum { FIRST_ARCH = 30, LAST_ARCH = 75 }; /* text for newer devices has PTX that this clang may not know */

bool worker_ptx_knows(const worker_tools *t, const char *arch)
{
    int n = strncmp(arch, "sm_", 3) ? 0 : atoi(arch + 3);
    char plain[16];
    snprintf(plain, sizeof plain, "sm_%d", n);
    return t->clang[0] && n >= FIRST_ARCH && n <= LAST_ARCH && !strcmp(plain, arch);
}

bool worker_compile_ptx(const worker_tools *t, kiln_bytes source, const char *arch, int deadline_ms, worker_blob *ptx, worker_error *e)
{
    char dir[CHILD_DIR_BYTES], gpu[40];
    child_result r;
    child_limits limits = {.deadline_ms = deadline_ms, .address_bytes = INT64_C(4) << 30, .file_bytes = 64 << 20, .processes = 16};
    if (!worker_ptx_knows(t, arch)) {
        return toolchain_fail(e, KILN_UNSUPPORTED, "toolchain-missing", "%s: PTX through clang is made for sm_%d to sm_%d%s", arch,
                              FIRST_ARCH, LAST_ARCH, t->clang[0] ? "" : ", and there is no clang here");
    }
    snprintf(gpu, sizeof gpu, "--cuda-gpu-arch=%.20s", arch);
    const char *argv[] = {"exec",
                          t->clang,
                          "-x",
                          "cuda",
                          "--cuda-device-only",
                          gpu,
                          "-nocudainc",
                          "-nocudalib",
                          "-fdeclspec",
                          "-fno-builtin",
                          "-Wno-unknown-cuda-version",
                          "-O3",
                          "-S",
                          "kernel.cu",
                          "-o",
                          "kernel.ptx",
                          NULL};
    size_t head = strlen(toolchain_ptx_text);
    char *text = malloc(head + source.n + 1);
    if (!text) return toolchain_fail(e, KILN_MEMORY, "compile-failed", "out of memory");
    memcpy(text, toolchain_ptx_text, head);
    memcpy(text + head, source.p, source.n);
    /* the client's text alone is judged: ours names lines, which generated text may not */
    bool ok = toolchain_open(t, source, "kernel.cu", dir, e);
    if (ok && !child_dir_put(dir, "kernel.cu", text, head + source.n))
        ok = toolchain_fail(e, KILN_MEMORY, "compile-failed", "the disk is full");
    free(text);
    if (!ok) {
        if (dir[0]) child_dir_remove(dir);
        return false;
    }
    if (!child_run(t, dir, argv, &limits, &r)) {
        ok = toolchain_fail(e, KILN_MEMORY, "compile-failed", "%s", r.why);
    } else {
        ok = toolchain_judge(&r, "clang", r.err_n ? r.err : r.out, deadline_ms, e);
        if (ok && !child_dir_get(dir, "kernel.ptx", 64 << 20, &ptx->p, &ptx->n)) {
            ok = toolchain_fail(e, KILN_INTERNAL, "compile-failed", "clang left no PTX");
        }
    }
    if (ok) { snprintf(ptx->kind, sizeof ptx->kind, "ptx"); }
    child_result_free(&r);
    child_dir_remove(dir);
    return ok;
}
