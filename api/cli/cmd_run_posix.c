/* kiln run: loads a CPU kernel into this process, runs it on random or given arrays, times it, compares with the reference. */
#include "api/cli/cli.h"
#include "api/cli/npy.h"
#include "api/cli/pool.h"
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef int32_t (*entry_fn)(const void *const *, void *const *, void *, const struct kiln_pool *);
typedef int64_t (*workspace_fn)(int32_t);

struct job {
    struct cli *c;
    kiln_program *program;
    void *so;
    entry_fn entry;
    workspace_fn workspace;
    int nin, nout;
    kiln_arg in[KILN_MAX_TENSORS], out[KILN_MAX_TENSORS];
    void *inputs[KILN_MAX_TENSORS], *outputs[KILN_MAX_TENSORS], *scratch;
    void *packed[KILN_MAX_TENSORS], *given[KILN_MAX_TENSORS]; /* what the kernel is called with: an input, or its packed copy */
    double median_us, best_us;
};

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static float half_value(uint16_t h)
{
    int e = h >> 10 & 31, m = h & 1023;
    double x = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
    return (float)(h >> 15 ? -x : x);
}

static double element(const kiln_arg *a, const void *p, int64_t i)
{
    uint32_t wide;
    float f;
    if (!strcmp(a->dtype, "f32")) return ((const float *)p)[i];
    if (!strcmp(a->dtype, "f64")) return ((const double *)p)[i];
    if (!strcmp(a->dtype, "i32")) return ((const int32_t *)p)[i];
    if (!strcmp(a->dtype, "i64")) return (double)((const int64_t *)p)[i];
    if (!strcmp(a->dtype, "i16")) return ((const int16_t *)p)[i];
    if (!strcmp(a->dtype, "i8")) return ((const int8_t *)p)[i];
    if (!strcmp(a->dtype, "f16")) return half_value(((const uint16_t *)p)[i]);
    if (!strcmp(a->dtype, "bf16")) {
        wide = (uint32_t)((const uint16_t *)p)[i] << 16;
        memcpy(&f, &wide, 4);
        return f;
    }
    if (!strcmp(a->dtype, "f8e5m2")) return half_value((uint16_t)(((const uint8_t *)p)[i] << 8));
    if (!strcmp(a->dtype, "f8e4m3")) {
        unsigned b = ((const uint8_t *)p)[i];
        return (b & 0x7f) == 0x7f ? NAN : 256 * half_value((uint16_t)((b & 0x80) << 8 | (b & 0x7f) << 7));
    }
    return ((const uint8_t *)p)[i];
}

/* A multiple of 1/8 in [-1, 1), which all floats of 8 bits hold. */
static uint8_t byte_of(int eighths, bool e4m3)
{
    float f = (float)eighths / 8;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    int fraction = e4m3 ? 3 : 2, bias = e4m3 ? 120 : 112;
    return eighths ? (uint8_t)((bits >> 24 & 0x80) | ((bits >> 23 & 255) - (uint32_t)bias) << fraction | (bits & 0x7fffff) >> (23 - fraction)) : 0;
}

/* Random values that every dtype holds well: [-1, 1) in steps of 1/64 for floats, small integers else. */
static void fill(const kiln_arg *a, void *p, uint64_t seed)
{
    for (int64_t i = 0; i < a->elems; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        int k = (int)(seed >> 57) - 64;
        float f = (float)k / 64;
        uint32_t bits;
        memcpy(&bits, &f, 4);
        if (!strcmp(a->dtype, "f32")) ((float *)p)[i] = f;
        else if (!strcmp(a->dtype, "f64")) ((double *)p)[i] = f;
        else if (!strcmp(a->dtype, "i32")) ((int32_t *)p)[i] = k / 8;
        else if (!strcmp(a->dtype, "i64")) ((int64_t *)p)[i] = k / 8;
        else if (!strcmp(a->dtype, "i16")) ((int16_t *)p)[i] = (int16_t)(k / 8);
        else if (!strcmp(a->dtype, "i8")) ((int8_t *)p)[i] = (int8_t)(k / 8);
        else if (!strcmp(a->dtype, "bf16")) ((uint16_t *)p)[i] = (uint16_t)(bits >> 16);
        else if (!strcmp(a->dtype, "f16")) /* exact: 7 significant bits */
            ((uint16_t *)p)[i] = (uint16_t)(k ? (bits >> 16 & 0x8000) | ((bits >> 23 & 255) - 112) << 10 | (bits >> 13 & 1023) : 0);
        else if (!strncmp(a->dtype, "f8", 2)) ((uint8_t *)p)[i] = byte_of(k / 8, a->dtype[3] == '4');
        else ((uint8_t *)p)[i] = (uint8_t)((k & 7) & (strcmp(a->dtype, "bool") ? 7 : 1));
    }
}

/* The shared object, fetched by digest and checked against it. */
static int fetch(struct job *j, const cJSON *answer)
{
    const cJSON *a, *found = NULL;
    cJSON_ArrayForEach(a, cJSON_GetObjectItemCaseSensitive(answer, "artifacts")) if (!strcmp(json_text(a, "kind"), "so")) found = a;
    if (!found) return cli_fail(DATA, "this kernel has no shared object; only CPU kernels can run here");
    struct http_answer h;
    if (!http_call(j->c, json_text(found, "href"), NULL, NULL, &h)) return UNAVAILABLE;
    uint8_t digest[32];
    char hex[65], path[] = "/tmp/kiln-run-XXXXXX";
    kiln_sha256(h.body ? h.body : "", h.n, digest);
    kiln_hex(digest, 32, hex);
    int status = h.status != 200                           ? http_problem(&h)
                 : strcmp(hex, json_text(found, "sha256")) ? cli_fail(DATA, "the shared object does not match its digest")
                                                           : OK;
    int fd = status == OK ? mkstemp(path) : -1;
    if (status == OK && (fd < 0 || write(fd, h.body, h.n) != (ssize_t)h.n)) status = cli_fail(CANT_CREATE, "%s cannot be written", path);
    if (fd >= 0) close(fd);
    if (status == OK && !(j->so = dlopen(path, RTLD_NOW | RTLD_LOCAL))) status = cli_fail(DATA, "%s", dlerror());
    if (fd >= 0) unlink(path);
    free(h.body);
    return status;
}

static int bind_symbols(struct job *j)
{
    const char *name = dlsym(j->so, "kiln_entry");
    int32_t (*version)(void);
    char workspace[160];
    *(void **)&version = dlsym(j->so, "kiln_abi_version");
    if (!name || !version || version() != 1) return cli_fail(DATA, "the shared object does not speak kernel ABI 1");
    snprintf(workspace, sizeof workspace, "%s_workspace", name);
    *(void **)&j->entry = dlsym(j->so, name);
    *(void **)&j->workspace = dlsym(j->so, workspace);
    return j->entry && j->workspace ? OK : cli_fail(DATA, "the shared object lacks %s", name);
}

static int arrays(struct job *j, const cJSON *binding)
{
    j->nin = kiln_program_inputs(j->program);
    j->nout = kiln_program_outputs(j->program);
    for (int i = 0; i < j->nin + j->nout; i++) {
        kiln_arg *a = i < j->nin ? &j->in[i] : &j->out[i - j->nin];
        if (i < j->nin) kiln_program_input(j->program, i, a);
        else kiln_program_output(j->program, i - j->nin, a);
        void **p = i < j->nin ? &j->inputs[i] : &j->outputs[i - j->nin];
        *p = aligned_alloc(64, ((size_t)a->bytes + 63) / 64 * 64 + 64);
        if (!*p) return cli_fail(SOFTWARE, "out of memory for %s (%lld bytes)", a->name, (long long)a->bytes);
        memset(*p, 0xff, (size_t)a->bytes);
        if (i < j->nin) fill(a, *p, (uint64_t)i + 1);
    }
    for (int k = 0; k < j->c->ninputs; k++) {
        const char *eq = strchr(j->c->inputs[k], '=');
        char name[80], *file = NULL;
        snprintf(name, sizeof name, "%.*s", eq ? (int)(eq - j->c->inputs[k]) : 0, j->c->inputs[k]);
        const char *canonical = *json_text(binding, name) ? json_text(binding, name) : name;
        int at = -1;
        for (int i = 0; i < j->nin; i++)
            if (!strcmp(j->in[i].name, canonical)) at = i;
        if (!eq || at < 0) return cli_fail(USAGE, "--input %s: NAME=FILE.npy with the name of an input is right", j->c->inputs[k]);
        const char *data = npy_read(eq + 1, &j->in[at], &file);
        if (data) memcpy(j->inputs[at], data, (size_t)j->in[at].bytes);
        free(file);
        if (!data) return DATA;
    }
    return OK;
}

/* Constants that the kernel takes in an order of its own are brought into it, once. */
static int pack(struct job *j)
{
    const char *name = dlsym(j->so, "kiln_entry");
    for (int i = 0; i < j->nin; i++) {
        char symbol[160];
        int64_t (*make)(const void *, void *);
        snprintf(symbol, sizeof symbol, "%s_prepack_%d", name, i);
        *(void **)&make = dlsym(j->so, symbol);
        j->given[i] = j->inputs[i];
        if (!make) continue;
        int64_t bytes = make(NULL, NULL);
        j->packed[i] = aligned_alloc(64, (size_t)(bytes + 127) / 64 * 64);
        if (!j->packed[i]) return cli_fail(SOFTWARE, "out of memory for %s packed (%lld bytes)", j->in[i].name, (long long)bytes);
        make(j->inputs[i], j->packed[i]);
        j->given[i] = j->packed[i];
    }
    return OK;
}

static int by_value(const void *x, const void *y) { return (*(const double *)x > *(const double *)y) - (*(const double *)x < *(const double *)y); }

static int timed(struct job *j)
{
    struct kiln_pool *pool = j->c->threads > 1 ? pool_open(j->c->threads) : NULL;
    int64_t bytes = j->workspace(pool ? pool->nthreads : 1);
    double *us = calloc((size_t)j->c->runs, sizeof *us), begin = now_us();
    int n = 0, rc = 0;
    j->scratch = aligned_alloc(64, (size_t)(bytes + 127) / 64 * 64);
    if (!us || !j->scratch) rc = -1;
    for (int i = -1; i < j->c->runs && !rc && (i < 3 || now_us() - begin < 5e6); i++) {
        double t = now_us();
        rc = j->entry((const void *const *)j->given, j->outputs, j->scratch, pool);
        if (i >= 0) us[n++] = now_us() - t;
    }
    if (!rc) {
        qsort(us, (size_t)n, sizeof *us, by_value);
        j->median_us = us[n / 2];
        j->best_us = us[0];
    }
    pool_close(pool);
    free(us);
    return rc ? cli_fail(SOFTWARE, "the kernel returned %d", rc) : OK;
}

static double read_input(void *user, int input, int64_t index)
{
    struct job *j = user;
    return element(&j->in[input], j->inputs[input], index);
}

/* Samples points of every output within about a second; prints the worst. */
static int compare(struct job *j)
{
    kiln_ref *ref;
    kiln_diag d = {0};
    double worst = 0, begin = now_us();
    int64_t checked = 0;
    if (kiln_ref_open(j->c->arena, j->program, read_input, j, &ref, &d) != KILN_OK) return cli_diag(&d);
    for (int o = 0; o < j->nout; o++) {
        double rtol, atol, value, scale;
        int64_t n = j->out[o].elems, step = n > 20000 ? n / 20000 | 1 : 1;
        kiln_tolerance(j->program, o, &rtol, &atol);
        for (int64_t i = 0, at = 0; i < n && now_us() - begin < 1e6 * (o + 1); i += step, checked++) {
            at = i % 3 == 2 ? n - 1 - i : i; /* from both ends */
            if (kiln_ref_at(ref, o, at, &value, &scale) != KILN_OK) return cli_fail(SOFTWARE, "the reference failed");
            double got = element(&j->out[o], j->outputs[o], at), error = got == value ? 0 : fabs(got - value) / (rtol * scale + atol);
            if ((got != got) != (value != value) || error > worst) worst = got == got || value != value ? error : INFINITY;
        }
    }
    if (j->c->json) printf("\"checked\":%lld,\"worst_error\":%.4g,\"ok\":%s}\n", (long long)checked, worst, worst <= 1 ? "true" : "false");
    else
        printf("reference     %lld points compared, worst error %.3f of the tolerance: %s\n", (long long)checked, worst,
               worst <= 1 ? "ok" : "WRONG");
    return worst <= 1 ? OK : DATA;
}

static int run(struct job *j, const cJSON *answer)
{
    const cJSON *manifest = cJSON_GetObjectItemCaseSensitive(answer, "manifest");
    const char *text = json_text(manifest, "program");
    kiln_request *r;
    kiln_diag d = {0};
    if (kiln_request_text(j->c->arena, (kiln_bytes){text, strlen(text)}, (kiln_bytes){"", 0}, NULL, &r, &d) != KILN_OK) return cli_diag(&d);
    j->program = r->program;
    int status = fetch(j, answer);
    if (status == OK) status = bind_symbols(j);
    if (status == OK) status = arrays(j, cJSON_GetObjectItemCaseSensitive(answer, "binding"));
    if (status == OK) status = pack(j);
    if (status == OK) status = timed(j);
    if (status != OK) return status;
    double flops, bytes;
    kiln_work(j->program, &flops, &bytes);
    const char *form =
        j->c->json ? "{\"key\":\"%s\",\"threads\":%d,\"median_us\":%.2f,\"best_us\":%.2f,\"gflops\":%.2f,\"gbs\":%.2f,"
                   : "key           %s\nthreads       %d\ntime          %.2f us median, %.2f best\nrate          %.2f GFLOP/s, %.2f GB/s\n";
    printf(form, json_text(answer, "key"), j->c->threads, j->median_us, j->best_us, flops / j->median_us / 1e3, bytes / j->median_us / 1e3);
    if (j->c->output && !npy_write(j->c->output, &j->out[0], j->outputs[0])) return CANT_CREATE;
    return compare(j);
}

int cmd_run(struct cli *c)
{
    if (c->nargs == 1 && cli_is_folder(c->args[0])) return cli_model_run(c);
    int status = OK;
    cJSON *answer = cli_kernel(c, &status);
    if (!answer) return status;
    struct job *j = calloc(1, sizeof *j);
    if (j) {
        j->c = c;
        status = run(j, answer);
        for (int i = 0; i < j->nin; i++) free(j->inputs[i]), free(j->packed[i]);
        for (int i = 0; i < j->nout; i++) free(j->outputs[i]);
        free(j->scratch);
        if (j->so) dlclose(j->so);
    }
    free(j);
    cJSON_Delete(answer);
    return status;
}
