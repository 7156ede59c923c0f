/* C text to a shared object, through the C compiler in a child. */
#include "workers/toolchain.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ARGS = 56 };

/* Never fast-math: NaN and infinity propagate as in IEEE. No kernel reads errno or the floating-point flags. */
static const char *const base_flags[] = {"-std=gnu11",
                                         "-O2",
                                         "-ffp-contract=fast",
                                         "-fno-math-errno",
                                         "-fno-trapping-math",
                                         "-fPIC",
                                         "-shared",
                                         "-fvisibility=hidden",
                                         "-pipe", /* assembled while it is still written */
                                         "-x",
                                         "c",
                                         "kernel.c",
                                         "-o",
                                         "kernel.so",
                                         "-nostdlib"}; /* start files and libgcc are not needed; what loads a kernel has libc */

/* "-m...", "-f...", "-D..." and "-O...": a hardware description is a client's data, and no other flag is needed. */
static bool flag_ok(const char *f)
{
    static const char *const refused[] = {"-fplugin",
                                          "-fdump",
                                          "-fprofile",
                                          "-fauto-profile",
                                          "-fsanitize",
                                          "-ffile-",
                                          "-fcallgraph-info",
                                          "-fopt-info",
                                          "-fpass-plugin",
                                          "-fstack-usage",
                                          "-fsave-optimization-record"};
    if (strcmp(f, "-fsanitize=kernel-address") == 0) { return true; } /* calls around accesses, nothing linked: emu_traffic.h */
    if (f[0] != '-' || f[1] == 0 || strchr("mfDO", f[1]) == NULL || strpbrk(f, "/\\@ \t\n") != NULL) { return false; }
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        if (strncmp(f, refused[i], strlen(refused[i])) == 0) { return false; }
    }
    return true;
}

/* The linker takes as long over libm as over the kernel: it is there only for a text that calls it. */
static bool arguments(const worker_tools *t, kiln_bytes source, const char *const *flags, int nflags, const char **argv, worker_error *e)
{
    int n = 0;
    argv[n++] = "exec";
    argv[n++] = t->cc;
    for (int i = 0; i < nflags; i++) {
        if (!flag_ok(flags[i]) || n >= MAX_ARGS - (int)(sizeof base_flags / sizeof *base_flags) - 2) {
            return toolchain_fail(e, KILN_HWSPEC, "compile-failed",
                                  "compiler flag \"%.100s\" of the target is refused: only -m, -f, -D and -O, and not too many", flags[i]);
        }
    }
    for (size_t i = 0; i < sizeof base_flags / sizeof *base_flags; i++) {
        argv[n++] = base_flags[i];
        for (int f = 0; i == 1 && f < nflags; f++) { argv[n++] = flags[f]; /* after our own -O, so that the target's wins */ }
    }
    if (workers_source_names_math(source.p, source.n)) { argv[n++] = "-lm"; }
    argv[n] = NULL;
    return true;
}

bool worker_compile_c(const worker_tools *t, kiln_bytes source, const char *const *flags, int nflags, int deadline_ms, worker_blob *so,
                      worker_error *e)
{
    char dir[CHILD_DIR_BYTES];
    const char *argv[MAX_ARGS];
    child_result r;
    child_limits limits = {.deadline_ms = deadline_ms, .address_bytes = INT64_C(4) << 30, .file_bytes = 64 << 20, .processes = 64};
    if (!t->cc[0]) {
        return toolchain_fail(e, KILN_UNSUPPORTED, "toolchain-missing",
                              "no C compiler here (looked at KILN_CC, and for cc, gcc and clang in PATH): only source can be had");
    }
    if (nflags < 0 || nflags > 32) { return toolchain_fail(e, KILN_HWSPEC, "compile-failed", "at most 32 compiler flags"); }
    if (!arguments(t, source, flags, nflags, argv, e) || !toolchain_open(t, source, "kernel.c", dir, e)) { return false; }
    bool ok = child_run(t, dir, argv, &limits, &r);
    if (!ok) {
        toolchain_fail(e, KILN_MEMORY, "compile-failed", "%s", r.why);
    } else {
        ok = toolchain_judge(&r, "the C compiler", r.err_n ? r.err : r.out, deadline_ms, e);
        if (ok && !child_dir_get(dir, "kernel.so", 64 << 20, &so->p, &so->n)) {
            ok = toolchain_fail(e, KILN_INTERNAL, "compile-failed", "the C compiler left no shared object");
        }
    }
    if (ok) { snprintf(so->kind, sizeof so->kind, "so"); }
    child_result_free(&r);
    child_dir_remove(dir);
    return ok;
}
