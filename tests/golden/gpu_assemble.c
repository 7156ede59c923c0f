/* How long NVRTC takes for products that are constructed, from text to cubin, in the child process that the workers use: dtypes, layouts and sizes on
 * sm_80 and sm_90a, some rounds in turns with a fixed small kernel (tests/data/nvrtc_reference.cu). Milliseconds are told; what is held to a bound
 * are ratios of processor time to the fixed kernel's, which another machine or a busy one changes little.
 * usage: gpu-assemble [-s] [-n ROUNDS]; -s: two kernels, one round unless -n says more. Status 0: the median of the ratios is at most MOST. */
#include "tests/arena.h"
#include "tests/golden/ops_table.h"
#include "workers/child.h"
#include "workers/workers.h"
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { ROUNDS = 15, KERNELS = 32 };
static const char reference[] = "tests/data/nvrtc_reference.cu";
static const double MOST = 3; /* times the fixed kernel's; it stood at 1.7 when the median was 325 ms of processor time, child and all */
typedef struct product { const char *name, *expr, *inputs, *device, *arch; bool often; } product;
#define KN "c[M,N] +=! a[M,K]*b[K,N]"
#define NK "c[M,N] +=! a[M,K]*b[N,K]"
#define I8 "c[M,N] +=! cast(a[M,K],i32)*cast(b[N,K],i32)"
#define F8 "c[M,N] +=! cast(a[M,K],f32)*cast(b[N,K],f32) : bf16"
#define A100 "nvidia-a100", "sm_80"
#define H200 "nvidia-h200", "sm_90a"
static const product products[] = {
    {"bf16 1024^3", KN, "a=bf16:1024x1024&b=bf16:1024x1024", A100, true},
    {"bf16 4096^3", KN, "a=bf16:4096x4096&b=bf16:4096x4096", A100, false},
    {"f16 8192^3, b[N,K]", NK, "a=f16:8192x8192&b=f16:8192x8192", A100, false},
    {"bf16 3000x1112x5000", KN, "a=bf16:3000x1112&b=bf16:1112x5000", A100, false},
    {"i8 4096^3, b[N,K]", I8, "a=i8:4096x4096&b=i8:4096x4096", A100, false},
    {"f32 4096^3", KN, "a=f32:4096x4096&b=f32:4096x4096", A100, false},
    {"f32 1000x1001x777, b[N,K]", NK, "a=f32:1000x1001&b=f32:777x1001", A100, false},
    {"f64 1024^3", KN, "a=f64:1024x1024&b=f64:1024x1024", A100, false},
    {"bf16 1024^3", KN, "a=bf16:1024x1024&b=bf16:1024x1024", H200, false},
    {"bf16 4096^3", KN, "a=bf16:4096x4096&b=bf16:4096x4096", H200, true},
    {"f16 8192^3, b[N,K]", NK, "a=f16:8192x8192&b=f16:8192x8192", H200, false},
    {"bf16 3000x1112x5000", KN, "a=bf16:3000x1112&b=bf16:1112x5000", H200, false},
    {"bf16 16x8192x8192, b[N,K]", NK, "a=bf16:16x8192&b=bf16:8192x8192", H200, false},
    {"i8 4096^3, b[N,K]", I8, "a=i8:4096x4096&b=i8:4096x4096", H200, false},
    {"f8e4m3 4096^3, b[N,K]", F8, "a=f8e4m3:4096x4096&b=f8e4m3:4096x4096", H200, false},
    {"f32 4096^3", KN, "a=f32:4096x4096&b=f32:4096x4096", H200, false},
    {"f32 1000x1001x777, b[N,K]", NK, "a=f32:1000x1001&b=f32:777x1001", H200, false},
};
typedef struct times { double wall[ROUNDS], cpu[ROUNDS], ratio[ROUNDS]; } times;

static int order(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(const double *x, int n)
{
    double y[KERNELS + ROUNDS];
    memcpy(y, x, sizeof *x * (size_t)n);
    qsort(y, (size_t)n, sizeof *y, order);
    return y[n / 2];
}

static double seconds(const struct timeval *t) { return (double)t->tv_sec + (double)t->tv_usec * 1e-6; }

static bool assemble(const worker_tools *tools, kiln_bytes text, const char *arch, double *wall_ms, double *cpu_ms)
{
    worker_blob ptx = {0}, cubin = {0};
    worker_error e = {0};
    char *log = NULL;
    struct rusage r0, r1;
    struct timespec t0, t1;
    getrusage(RUSAGE_CHILDREN, &r0);
    clock_gettime(CLOCK_MONOTONIC, &t0);
    bool ok = worker_compile_cuda(tools, text, arch, false, true, 60000, &ptx, &cubin, &log, &e);
    clock_gettime(CLOCK_MONOTONIC, &t1);
    getrusage(RUSAGE_CHILDREN, &r1);
    *wall_ms = (double)(t1.tv_sec - t0.tv_sec) * 1e3 + (double)(t1.tv_nsec - t0.tv_nsec) * 1e-6;
    *cpu_ms = 1e3 * (seconds(&r1.ru_utime) + seconds(&r1.ru_stime) - seconds(&r0.ru_utime) - seconds(&r0.ru_stime));
    if (!ok) printf("%s: %s\n", arch, e.message);
    free(log);
    free(ptx.p);
    free(cubin.p);
    return ok;
}

static kiln_kernel *kernel_of(kiln_arena *a, const product *p)
{
    kiln_request *r;
    kiln_candidates *c;
    kiln_kernel *k;
    kiln_diag d = {0};
    kn_hw *hw = ops_device(a, p->device);
    kiln_bytes expr = {p->expr, strlen(p->expr)}, inputs = {p->inputs, strlen(p->inputs)};
    if (hw && !kiln_request_text(a, expr, inputs, NULL, &r, &d) && !kiln_construct(a, r->program, hw, "default", 1, &c, &d) &&
        !kiln_generate(a, r->program, hw, c->c[0].trace, &k, &d))
        return k;
    printf("%s on %s: %s\n", p->name, p->device, d.message);
    return NULL;
}

/* One round: the fixed kernel once for each architecture, then every product. */
static bool round_of(const worker_tools *tools, kiln_bytes fixed, const product *const *p, kiln_kernel *const *k, int n, int round, times *t)
{
    static const char *const archs[] = {"sm_80", "sm_90a"};
    double wall, base[2];
    for (int i = 0; i < 2; i++)
        if (!assemble(tools, fixed, archs[i], &wall, &base[i])) return false;
    for (int i = 0; i < n; i++) {
        if (!assemble(tools, k[i]->source, p[i]->arch, &t[i].wall[round], &t[i].cpu[round])) return false;
        t[i].ratio[round] = t[i].cpu[round] / base[!strcmp(p[i]->arch, archs[1])];
    }
    return true;
}

static bool report(const product *const *p, kiln_kernel *const *k, const times *t, int n, int rounds)
{
    double wall[KERNELS], cpu[KERNELS], ratio[KERNELS];
    printf("%-28s %-8s %9s %12s %12s %10s\n", "product", "arch", "text, KB", "median, ms", "its CPU, ms", "ratio");
    for (int i = 0; i < n; i++) {
        wall[i] = median(t[i].wall, rounds), cpu[i] = median(t[i].cpu, rounds), ratio[i] = median(t[i].ratio, rounds);
        printf("%-28s %-8s %9.1f %12.1f %12.1f %10.2f\n", p[i]->name, p[i]->arch, (double)k[i]->source.n / 1e3, wall[i], cpu[i], ratio[i]);
    }
    bool ok = median(ratio, n) <= MOST;
    printf("median of %d: %.1f ms (processor %.1f), %.2f times the fixed kernel's processor time (at most %.1f): %s\n", n, median(wall, n),
           median(cpu, n), median(ratio, n), MOST, ok ? "holds" : "does not hold");
    return ok;
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "child")) return child_main(argc, argv);
    bool brief = false;
    int n = 0, rounds = 0;
    for (int i = 1; i < argc; i++) {
        brief |= !strcmp(argv[i], "-s");
        if (!strcmp(argv[i], "-n") && i + 1 < argc) rounds = atoi(argv[++i]);
    }
    rounds = rounds < 1 ? 1 : rounds > ROUNDS ? ROUNDS : rounds;
    static worker_tools tools;
    static times t[KERNELS];
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    const product *p[KERNELS];
    kiln_kernel *k[KERNELS];
    static char text[8192];
    FILE *f = fopen(reference, "r");
    kiln_bytes fixed = {text, f ? fread(text, 1, sizeof text, f) : 0};
    if (f) fclose(f);
    workers_find_tools("build", &tools);
    snprintf(tools.worker, sizeof tools.worker, "%s", argv[0]);
    if (!tools.nvrtc[0]) {
        printf("no NVRTC here: nothing is assembled\n");
        return 0;
    }
    bool ok = fixed.n > 0;
    if (!ok) printf("%s: cannot be read\n", reference);
    for (size_t i = 0; i < sizeof products / sizeof *products && ok; i++) {
        if (brief && !products[i].often) continue;
        p[n] = &products[i];
        ok = (k[n++] = kernel_of(a, &products[i])) != NULL;
    }
    for (int r = 0; r < rounds && ok; r++) ok = round_of(&tools, fixed, p, k, n, r, t);
    ok = ok && report(p, k, t, n, rounds);
    kiln_arena_close(a);
    return !ok;
}
