/* Finds the tools once at start: kiln-worker, a C compiler, NVRTC. Libraries and compilers are asked who they are in children. */
#include "workers/child.h"
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PROBE_MS = 10000 };

/* Where NVRTC may lie, best first; "%s" is the folder of the binary. Globs, as versions and Python's folders differ. The first of a
 * row's matches that loads wins; `alt` builds do not match. The last row leaves the search to the loader. */
static const struct {
    const char *pattern, *said;
} nvrtc_places[] = {
    {"$KILN_NVRTC", "KILN_NVRTC"},
    {"$CUDA_HOME/lib64/libnvrtc.so.1[0-9]", "CUDA_HOME"},
    {"$CUDA_PATH/lib64/libnvrtc.so.1[0-9]", "CUDA_PATH"},
    {"/usr/local/cuda*/lib64/libnvrtc.so.1[0-9]", "/usr/local/cuda*"},
    {"/usr/local/cuda*/targets/x86_64-linux/lib/libnvrtc.so.1[0-9]", NULL},
    {"%s/nvrtc/nvidia/*/lib/libnvrtc.so.1[0-9]", "nvrtc/ beside the binary"},
    {"%s/nvrtc/lib/python3*/site-packages/nvidia/*/lib/libnvrtc.so.1[0-9]", NULL},
    {"%s/../nvrtc/nvidia/*/lib/libnvrtc.so.1[0-9]", NULL},
    {"=libnvrtc.so.13", "the loader's libnvrtc.so.13 and .12"},
    {"=libnvrtc.so.12", NULL},
};

static bool copy(char *out, size_t n, const char *s)
{
    size_t len = strlen(s);
    if (len >= n) { return false; }
    memcpy(out, s, len + 1);
    return true;
}

bool workers_exe_dir(char *dir, size_t n)
{
    char path[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", path, sizeof path - 1);
    if (len <= 0) { return false; }
    path[len] = 0;
    char *slash = strrchr(path, '/');
    *(slash == path ? slash + 1 : slash) = 0;
    return copy(dir, n, path);
}

/* Runs a child for its answer; the caller frees. */
static bool ask(const worker_tools *t, const char *const *argv, int processes, child_result *r)
{
    char dir[CHILD_DIR_BYTES], why[256];
    child_limits limits = {.deadline_ms = PROBE_MS, .address_bytes = INT64_C(8) << 30, .processes = processes};
    *r = (child_result){.exit_code = -1};
    if (!child_dir_make(t, dir, why, sizeof why)) { return false; }
    bool ok = child_run(t, dir, argv, &limits, r) && !r->timed_out && r->exit_code == 0;
    child_dir_remove(dir);
    return ok;
}

static bool executable(const char *path, char *out, size_t n)
{
    char real[PATH_MAX];
    if (access(path, X_OK) != 0 || realpath(path, real) == NULL || strstr(real, "ccache") != NULL) {
        return false; /* ccache wants a home folder to write to, which children do not have */
    }
    return copy(out, n, path);
}

static bool in_path(const char *name, char *out, size_t n)
{
    const char *p = getenv("PATH");
    char one[PATH_MAX];
    for (p = p ? p : "/usr/local/bin:/usr/bin:/bin"; *p; p += strcspn(p, ":"), p += *p == ':') {
        int len = (int)strcspn(p, ":");
        if (*p == '/' && snprintf(one, sizeof one, "%.*s/%s", len, p, name) < (int)sizeof one && executable(one, out, n)) { return true; }
    }
    return false;
}

static void find_cc(worker_tools *t)
{
    static const char *const names[] = {"cc", "gcc", "clang"};
    const char *own = getenv("KILN_CC");
    child_result r;
    bool found = own && *own && (own[0] == '/' ? executable(own, t->cc, sizeof t->cc) : in_path(own, t->cc, sizeof t->cc));
    for (size_t i = 0; !found && !(own && *own) && i < sizeof names / sizeof *names; i++) {
        found = in_path(names[i], t->cc, sizeof t->cc);
    }
    if (!found) {
        t->cc[0] = 0; /* a KILN_CC that does not exist is not replaced by another compiler */
        return;
    }
    if (ask(t, (const char *const[]){"exec", t->cc, "--version", NULL}, 16, &r)) {
        snprintf(t->cc_version, sizeof t->cc_version, "%.*s", (int)strcspn(r.out, "\n"), r.out);
    }
    child_result_free(&r);
}

/* Only one that has NVIDIA's back end: distributions build it in, other builds may not. */
static void find_clang(worker_tools *t)
{
    static const char *const names[] = {"clang", "clang-19", "clang-16", "clang-14"};
    child_result r;
    for (size_t i = 0; i < sizeof names / sizeof *names && !t->clang[0]; i++) {
        if (!in_path(names[i], t->clang, sizeof t->clang)) { continue; }
        bool ok = ask(t, (const char *const[]){"exec", t->clang, "--print-targets", NULL}, 16, &r) && r.out && strstr(r.out, "nvptx64");
        child_result_free(&r);
        if (!ok) {
            t->clang[0] = 0;
            continue;
        }
        if (ask(t, (const char *const[]){"exec", t->clang, "--version", NULL}, 16, &r))
            snprintf(t->clang_version, sizeof t->clang_version, "%.*s", (int)strcspn(r.out, "\n"), r.out);
        child_result_free(&r);
    }
}

/* True when the library answers; t->nvrtc is its full path then. */
static bool try_nvrtc(const char *path, worker_tools *t, char *why, size_t why_n)
{
    child_result r;
    char line[PATH_MAX + 16];
    if (!copy(t->nvrtc, sizeof t->nvrtc, path)) { return false; }
    bool ok = ask(t, (const char *const[]){"nvrtc", path, "--probe", NULL}, 0, &r);
    const char *text = r.out ? r.out : "";
    if (!ok) { snprintf(why, why_n, "%.*s", (int)strcspn(text, "\n"), text); }
    t->nnvrtc_archs = 0;
    for (const char *p = text; ok && *p; p += strcspn(p, "\n"), p += *p == '\n') {
        int arch;
        snprintf(line, sizeof line, "%.*s", (int)strcspn(p, "\n"), p);
        if (sscanf(line, "arch %d", &arch) == 1 && t->nnvrtc_archs < 64) {
            t->nvrtc_archs[t->nnvrtc_archs++] = arch;
        } else if (strncmp(line, "version ", 8) == 0) {
            copy(t->nvrtc_version, sizeof t->nvrtc_version, line + 8);
        } else if (strncmp(line, "path ", 5) == 0) {
            copy(t->nvrtc, sizeof t->nvrtc, line + 5);
        }
    }
    if (!ok) { t->nvrtc[0] = 0; }
    child_result_free(&r);
    return ok;
}

/* The row's pattern with its variable or folder filled in; false when that is not set. */
static bool expand(const char *pattern, const char *exe_dir, char *out, size_t n)
{
    if (pattern[0] == '$') {
        char name[32];
        size_t len = strcspn(pattern + 1, "/");
        snprintf(name, sizeof name, "%.*s", (int)len, pattern + 1);
        const char *value = getenv(name);
        return value && *value && snprintf(out, n, "%s%s", value, pattern + 1 + len) < (int)n;
    }
    bool beside = strncmp(pattern, "%s", 2) == 0;
    return snprintf(out, n, "%s%s", beside ? exe_dir : "", pattern + (beside ? 2 : 0)) < (int)n;
}

static void find_nvrtc(const char *exe_dir, worker_tools *t)
{
    char path[PATH_MAX], why[160] = "", looked[240] = "looked at";
    for (size_t i = 0; i < sizeof nvrtc_places / sizeof *nvrtc_places; i++) {
        glob_t g = {0};
        size_t used = strlen(looked);
        if (nvrtc_places[i].said != NULL && used < sizeof looked) {
            snprintf(looked + used, sizeof looked - used, "%s %s", i ? "," : "", nvrtc_places[i].said);
        }
        if (!expand(nvrtc_places[i].pattern, exe_dir, path, sizeof path)) { continue; }
        bool found = path[0] == '=' && try_nvrtc(path + 1, t, why, sizeof why);
        if (path[0] != '=' && glob(path, 0, NULL, &g) == 0) {
            for (size_t k = g.gl_pathc; k > 0 && !found; k--) { /* newest last in a glob */
                found = try_nvrtc(g.gl_pathv[k - 1], t, why, sizeof why);
            }
            globfree(&g);
        }
        if (found) { return; }
    }
    snprintf(t->nvrtc_why, sizeof t->nvrtc_why, "%s%s%s", looked, why[0] ? "; " : "", why);
}

void workers_find_tools(const char *exe_dir, worker_tools *out)
{
    static const char *const places[] = {"$KILN_WORKER", "%s/kiln-child", "%s/../kiln-child", "%s/kiln-worker", "%s/../kiln-worker"};
    const char *tmp = getenv("TMPDIR");
    char path[PATH_MAX];
    *out = (worker_tools){0};
    copy(out->tmp, sizeof out->tmp, tmp && *tmp == '/' && strlen(tmp) < sizeof out->tmp ? tmp : "/tmp");
    for (size_t i = 0; i < sizeof places / sizeof *places && !out->worker[0]; i++) {
        if (expand(places[i], exe_dir, path, sizeof path) && access(path, X_OK) == 0) { copy(out->worker, sizeof out->worker, path); }
    }
    find_cc(out);
    find_clang(out);
    find_nvrtc(exe_dir, out);
    worker_gpu_here(out, out->gpu);
}
