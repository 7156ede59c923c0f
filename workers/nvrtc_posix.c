/* Mode "nvrtc": the child that loads NVRTC. `nvrtc LIB --probe` tells what it is; `nvrtc LIB SOURCE ARCH ptx|cubin` compiles.
 *
 * A cubin compile leaves PTX too when this NVRTC hands it out for a real architecture; else the source is compiled again for PTX. */
#include "workers/child.h"
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* NVRTC's C interface, spelled out: the build needs no CUDA headers. Results are an enum whose 0 is success. */
typedef struct nvrtc {
    int (*version)(int *major, int *minor);
    int (*arch_count)(int *n);
    int (*archs)(int *list);
    int (*create)(void **program, const char *src, const char *name, int nheaders, const char *const *headers, const char *const *names);
    int (*compile)(void *program, int n, const char *const *options);
    int (*log_size)(void *program, size_t *n);
    int (*log)(void *program, char *text);
    int (*ptx_size)(void *program, size_t *n);
    int (*ptx)(void *program, char *text);
    int (*cubin_size)(void *program, size_t *n);
    int (*cubin)(void *program, char *image);
    const char *(*error)(int result);
} nvrtc;

static bool load(const char *path, nvrtc *v)
{
    const struct {
        const char *name;
        void **place;
    } symbols[] = {{"nvrtcVersion", (void **)&v->version},
                   {"nvrtcGetNumSupportedArchs", (void **)&v->arch_count},
                   {"nvrtcGetSupportedArchs", (void **)&v->archs},
                   {"nvrtcCreateProgram", (void **)&v->create},
                   {"nvrtcCompileProgram", (void **)&v->compile},
                   {"nvrtcGetProgramLogSize", (void **)&v->log_size},
                   {"nvrtcGetProgramLog", (void **)&v->log},
                   {"nvrtcGetPTXSize", (void **)&v->ptx_size},
                   {"nvrtcGetPTX", (void **)&v->ptx},
                   {"nvrtcGetCUBINSize", (void **)&v->cubin_size},
                   {"nvrtcGetCUBIN", (void **)&v->cubin},
                   {"nvrtcGetErrorString", (void **)&v->error}};
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (lib == NULL) {
        printf("%s\n", dlerror());
        return false;
    }
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        *symbols[i].place = dlsym(lib, symbols[i].name);
        if (*symbols[i].place == NULL) {
            printf("%s: no %s: older than CUDA 11.2\n", path, symbols[i].name);
            return false;
        }
    }
    return true;
}

/* Where the loaded library lies; "" when it cannot be told. */
static void own_path(const nvrtc *v, char path[PATH_MAX])
{
    Dl_info info;
    if (dladdr((void *)(uintptr_t)v->version, &info) == 0 || realpath(info.dli_fname, path) == NULL) { path[0] = 0; }
}

/* NVRTC opens its builtins by bare name, which finds nothing outside the loader's own folders (wheels); a copy already loaded counts. */
static void load_builtins(const nvrtc *v)
{
    char path[PATH_MAX + 64];
    int major = 0, minor = 0;
    own_path(v, path);
    char *slash = strrchr(path, '/');
    if (slash != NULL && v->version(&major, &minor) == 0) {
        snprintf(slash + 1, 64, "libnvrtc-builtins.so.%d.%d", major, minor);
        dlopen(path, RTLD_NOW | RTLD_LOCAL); /* failing is no matter: NVRTC says so itself */
    }
}

/* Read by workers_find_tools(): one "word value" a line. */
static int probe(const nvrtc *v)
{
    int major = 0, minor = 0, n = 0, list[256];
    char path[PATH_MAX];
    if (v->version(&major, &minor) != 0 || v->arch_count(&n) != 0 || n < 1 || n > 256 || v->archs(list) != 0) {
        printf("does not tell its version and architectures\n");
        return 1;
    }
    own_path(v, path);
    if (path[0]) { printf("path %s\n", path); }
    printf("version %d.%d\n", major, minor);
    for (int i = 0; i < n; i++) { printf("arch %d\n", list[i]); }
    return 0;
}

static void print_log(const nvrtc *v, void *program)
{
    size_t n = 0;
    char *text = v->log_size(program, &n) == 0 && n > 1 ? malloc(n + 1) : NULL;
    if (text != NULL && v->log(program, text) == 0) {
        text[n] = 0;
        for (char *line = text, *end; *line; line = end) {
            end = line + strcspn(line, "\n");
            end += *end == '\n';
            if (strstr(line, "Compile time") == NULL || strstr(line, "Compile time") >= end) {
                fwrite(line, 1, (size_t)(end - line), stdout); /* times would make two logs of one text differ */
            }
        }
    }
    free(text);
}

static bool save(int (*size)(void *, size_t *), int (*get)(void *, char *), void *program, const char *name, size_t tail)
{
    size_t n = 0;
    char *p = size(program, &n) == 0 && n > tail ? malloc(n) : NULL;
    bool ok = p != NULL && get(program, p) == 0 && child_dir_put(".", name, p, n - tail);
    free(p);
    return ok;
}

static bool compile(const nvrtc *v, const char *source, const char *kind, const char *arch, bool real)
{
    void *program = NULL;
    char target[64];
    snprintf(target, sizeof target, "--gpu-architecture=%s_%s", kind, arch);
    const char *options[] = {target, "-default-device", "--std=c++17", "--ptxas-options=-v"};
    int rc = v->create(&program, source, "kernel.cu", 0, NULL, NULL);
    if (rc == 0) {
        rc = v->compile(program, real ? 4 : 3, options);
        print_log(v, program);
    }
    if (rc != 0) {
        printf("NVRTC: %s\n", v->error(rc));
        return false;
    }
    bool ptx = save(v->ptx_size, v->ptx, program, "kernel.ptx", 1); /* sizes of PTX count a NUL */
    return real ? save(v->cubin_size, v->cubin, program, "kernel.cubin", 0) && (ptx || compile(v, source, "compute", arch, false)) : ptx;
}

int child_mode_nvrtc(int argc, char **argv)
{
    nvrtc v;
    char *source;
    size_t n;
    if (argc < 3 || !load(argv[1], &v)) { return 1; }
    if (strcmp(argv[2], "--probe") == 0) { return probe(&v); }
    if (argc != 5 || strncmp(argv[3], "sm_", 3) != 0 || !child_dir_get(".", argv[2], SIZE_MAX / 2, &source, &n)) {
        printf("usage: nvrtc LIB SOURCE sm_XX ptx|cubin\n");
        return 1;
    }
    bool real = strcmp(argv[4], "cubin") == 0;
    load_builtins(&v);
    bool ok = compile(&v, source, real ? "sm" : "compute", argv[3] + 3, real);
    free(source);
    return ok ? 0 : 1;
}
