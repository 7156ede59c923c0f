/* Kiln's first kernel for this machine against the same program as plain loops through `gcc -O3`, single-threaded, interleaved in one run,
 * medians of paired ratios, outputs compared. usage: plain BUILD SPEC.json CASES (one request JSON a line); run by bench.sh. */
#include "tests/arena.h"
#include "kiln.h"
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 15, KERNELS = 3 };
typedef int32_t (*entry_fn)(const void *const *, void *const *, void *, const void *);
typedef struct kernel { void *so; entry_fn run; void *workspace; double us[ROUNDS]; float *out; } kernel;

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* Compiles a source with the given flags and opens it. */
static bool build(const char *dir, int i, kiln_bytes source, const char *flags, kernel *k)
{
    char path[256], command[2048], name[200];
    snprintf(path, sizeof path, "%s/k%d.c", dir, i);
    FILE *f = fopen(path, "w");
    if (!f || fwrite(source.p, 1, source.n, f) != source.n || fclose(f)) return false;
    snprintf(command, sizeof command, "gcc -std=gnu11 %s -fPIC -shared -fvisibility=hidden -Wno-psabi %s -o %s/k%d.so -lm", flags, path, dir, i);
    if (system(command)) return false;
    snprintf(path, sizeof path, "%s/k%d.so", dir, i);
    if (!(k->so = dlopen(path, RTLD_NOW | RTLD_LOCAL))) return false;
    const char *entry = dlsym(k->so, "kiln_entry");
    int64_t (*workspace)(int32_t);
    snprintf(name, sizeof name, "%s_workspace", entry);
    *(void **)&workspace = dlsym(k->so, name);
    *(void **)&k->run = dlsym(k->so, entry);
    k->workspace = aligned_alloc(64, (size_t)(workspace(1) + 127) / 64 * 64);
    return true;
}

static int by_value(const void *x, const void *y) { return (*(const double *)x > *(const double *)y) - (*(const double *)x < *(const double *)y); }

static double median(const double *x, int n)
{
    double s[ROUNDS];
    memcpy(s, x, sizeof *s * (size_t)n);
    qsort(s, (size_t)n, sizeof *s, by_value);
    return s[n / 2];
}

static double paired(const kernel *peer, const kernel *own)
{
    double r[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) r[i] = peer->us[i] / own->us[i];
    return median(r, ROUNDS);
}

static const char *flags_of(const kiln_hw *hw, char *out, size_t cap)
{
    const char *const *list;
    int n = kiln_hw_flags(hw, &list);
    size_t used = (size_t)snprintf(out, cap, "-O2 -ffp-contract=fast -fno-math-errno -fno-trapping-math");
    for (int i = 0; i < n; i++) used += (size_t)snprintf(out + used, cap - used, " %s", list[i]);
    return out;
}

static bool only_f32(const kiln_program *p)
{
    kiln_arg arg;
    for (int i = 0; i < kiln_program_inputs(p); i++) {
        kiln_program_input(p, i, &arg);
        if (strcmp(arg.dtype, "f32")) return false;
    }
    kiln_program_output(p, 0, &arg);
    return !strcmp(arg.dtype, "f32");
}

/* Kernel 0 is Kiln's, 1 plain loops with -O3, 2 the same for this machine. */
static bool prepare(kiln_arena *a, const char *line, kiln_hw *hw, const char *dir, kernel *k, kiln_program **program)
{
    kiln_request *r;
    kiln_diag d = {0};
    kiln_candidates *c;
    kiln_kernel *own, *plain;
    char flags[600];
    if (!kiln_request_json(a, (kiln_bytes){line, strlen(line)}, &r, &d) && !only_f32(r->program)) {
        printf("%s: this bench compares f32 kernels\n", line);
        return false;
    }
    if (d.message[0] || kiln_construct(a, r->program, hw, "default", 1, &c, &d) ||
        kiln_generate(a, r->program, hw, c->c[0].trace, &own, &d) || kiln_generate(a, r->program, hw, (kiln_bytes){"", 0}, &plain, &d)) {
        printf("%s: %s %s\n", line, d.pointer, d.message);
        return false;
    }
    *program = r->program;
    return build(dir, 0, own->source, flags_of(hw, flags, sizeof flags), &k[0]) && build(dir, 1, plain->source, "-O3", &k[1]) &&
           build(dir, 2, plain->source, "-O3 -march=native", &k[2]);
}

static double ratio_of_outputs(const kernel *k, int64_t n)
{
    double worst = 0;
    for (int64_t i = 0; i < n; i++) {
        double e = fabs(k[0].out[i] - k[1].out[i]) / (1e-3 + fabs(k[1].out[i]));
        if (e > worst || e != e) worst = e;
    }
    return worst;
}

/* Small kernels run many times a round, so that the clock is not what is measured. */
static void measure(kernel *k, const void *const *in)
{
    int repeat = 1;
    for (int round = -1; round < ROUNDS; round++) {
        for (int i = 0; i < KERNELS; i++) {
            void *out[] = {k[i].out};
            double t = now_us();
            for (int r = 0; r < repeat; r++) k[i].run(in, out, k[i].workspace, NULL);
            t = (now_us() - t) / repeat;
            if (round >= 0) k[i].us[round] = t;
            else if (i == 0) repeat = t < 200 ? (int)(200 / (t + 0.05)) + 1 : 1;
        }
    }
}

static double one_case(const char *line, kiln_hw *hw, const char *dir)
{
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    kernel k[KERNELS] = {0};
    kiln_program *p;
    const void *in[KILN_MAX_TENSORS];
    kiln_arg arg;
    double flops, bytes;
    if (!prepare(a, line, hw, dir, k, &p)) return 0;
    for (int i = 0; i < kiln_program_inputs(p); i++) {
        kiln_program_input(p, i, &arg);
        float *x = aligned_alloc(64, (size_t)(arg.bytes + 127) / 64 * 64);
        for (int64_t j = 0; j < arg.elems; j++) x[j] = (float)((j * 7919 + i * 13) % 127) / 64 - 1;
        in[i] = x;
    }
    kiln_program_output(p, 0, &arg);
    for (int i = 0; i < KERNELS; i++) k[i].out = aligned_alloc(64, (size_t)(arg.bytes + 127) / 64 * 64);
    measure(k, in);
    kiln_work(p, &flops, &bytes);
    double us = median(k[0].us, ROUNDS), o3 = paired(&k[1], &k[0]), native = paired(&k[2], &k[0]), error = ratio_of_outputs(k, arg.elems);
    const char *op = strstr(line, "\"op\"") ? line : "expression";
    printf("%-96.96s %10.1f %9.2f %9.2f %8.2fx %8.2fx %s\n", op + (op == line), us, flops / us / 1e3, bytes / us / 1e3, o3, native,
           error < 2e-2 ? "" : "DIFFERENT");
    fflush(stdout);
    for (int i = 0; i < kiln_program_inputs(p); i++) free((void *)in[i]);
    for (int i = 0; i < KERNELS; i++) {
        free(k[i].out);
        free(k[i].workspace);
        dlclose(k[i].so);
    }
    kiln_arena_close(a);
    return error < 2e-2 ? o3 : 0;
}

int main(int argc, char **argv)
{
    char dir[] = "/tmp/kiln-bench-XXXXXX", *line = NULL, spec[1 << 15], command[300];
    size_t cap = 0;
    FILE *f = argc == 3 ? fopen(argv[1], "r") : NULL, *cases = f ? fopen(argv[2], "r") : NULL;
    if (!cases || !mkdtemp(dir)) return fprintf(stderr, "usage: plain SPEC.json CASES\n"), 64;
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    kiln_hw *hw;
    kiln_diag d = {0};
    if (kiln_hw_parse(a, (kiln_bytes){spec, fread(spec, 1, sizeof spec, f)}, &hw, &d)) return fprintf(stderr, "%s\n", d.message), 65;
    printf("%-96s %10s %9s %9s %9s %9s\n", "request", "us", "GFLOP/s", "GB/s", "gcc -O3", "+native");
    int slower = 0, n = 0;
    double logs = 0;
    while (getline(&line, &cap, cases) > 0) {
        line[strcspn(line, "\n")] = 0;
        if (*line != '{') continue;
        double r = one_case(line, hw, dir);
        slower += r < 0.95;
        logs += log(r > 0 ? r : 1e-3);
        n++;
    }
    printf("%d cases, geometric mean against gcc -O3 %.2fx, %d slower than 0.95\n", n, exp(logs / (n ? n : 1)), slower);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command) != 0 || slower > 0;
}
