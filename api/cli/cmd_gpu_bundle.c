/* kiln gpu-bundle FILE -o DIR: kernels of the requests in FILE (JSON, one a line), compiled for a GPU, with what is needed to check and
 * measure them on a host that has one. workers/gpu/README.md has the format; `make gpu-bundle` adds the runner and packs it. */
#include "api/cli/cli.h"
#include "workers/build.h"
#include "workers/verify.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POINTS = 48, COMPILE_MS = 120000 };
#define SMALL_ELEMENTS (INT64_C(1) << 22) /* beyond, inputs are filled once, with random values alone */

typedef struct packer {
    struct cli *cli;
    worker_tools tools;
    FILE *text;
    kiln_arena *arena; /* of the request at hand */
    kiln_hw *hw;
    int kernels, groups, left_out;
} packer;

static void put_encoded(FILE *f, kiln_bytes t)
{
    for (size_t i = 0; i < t.n; i++) {
        unsigned char c = (unsigned char)t.p[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (c && strchr("._-[](),;:*+/|", c));
        fprintf(f, plain ? "%c" : "%%%02x", c);
    }
}

static void put_slot(FILE *f, const kiln_program *p, const kiln_kernel *k, int rank, int slot)
{
    int nin = kiln_program_inputs(p), nout = kiln_program_outputs(p), t = 0;
    if (slot < nin)
        fprintf(f, "in%d", slot);
    else if (slot < nin + nout)
        fprintf(f, "out%d", slot - nin);
    else {
        while (t < k->ntemps && k->temp_slots[t] != slot) t++;
        fprintf(f, "k%dt%d", rank, t);
    }
}

static void put_numbers(FILE *f, const char *key, const int64_t *x, int n)
{
    fprintf(f, " %s=", key);
    for (int i = 0; i < n; i++) fprintf(f, "%s%lld", i ? "," : "", (long long)x[i]);
}

static void put_arg(FILE *f, const kiln_program *p, const kiln_kernel *k, int rank, const kiln_launch *l, int j)
{
    const kiln_tensor_map *m = l->maps && l->maps[j].rank ? &l->maps[j] : NULL;
    int64_t box[5];
    fprintf(f, "arg %s=", m ? "tmap" : "ptr");
    put_slot(f, p, k, rank, l->args[j]);
    if (m) {
        for (int i = 0; i < m->rank; i++) box[i] = m->box[i];
        fprintf(f, " dtype=%s", m->dtype);
        put_numbers(f, "dims", m->dims, m->rank);
        if (m->rank > 1) put_numbers(f, "strides", m->strides, m->rank - 1);
        put_numbers(f, "box", box, m->rank);
        fprintf(f, " swizzle=%d l2=%d oob=%d", m->swizzle, m->l2, m->oob);
    }
    fputc('\n', f);
}

static void put_kernel(packer *w, const kiln_program *p, const kiln_kernel *k, const kiln_candidate *c, const char *module)
{
    double flops, bytes;
    FILE *f = w->text;
    kiln_work(p, &flops, &bytes);
    for (int i = 0; i < k->ntemps; i++)
        fprintf(f, "buffer id=k%dt%d dtype=u8 elems=%lld temporary=1\n", c->rank, i, (long long)k->temp_bytes[i]);
    fprintf(f, "kernel id=%s module=%s rank=%d flops=%.17g bytes=%.17g predicted_us=%.6g trace=", module, module, c->rank, flops, bytes,
            c->predicted_us);
    put_encoded(f, k->trace);
    fputc('\n', f);
    for (int i = 0; i < k->nlaunches; i++) {
        const kiln_launch *l = &k->launches[i];
        fprintf(f, "launch entry=%s grid=%lld,1,1 block=%d,1,1 cluster=%d,1,1 shared=%lld\n", l->entry, (long long)l->grid, l->threads,
                l->cluster > 1 ? l->cluster : 1, (long long)l->dynamic_shared_bytes);
        for (int j = 0; j < l->nargs; j++) put_arg(f, p, k, c->rank, l, j);
    }
}

/* A reader of inputs for the reference: the function that the runner fills them with. */
typedef struct source {
    const kiln_program *p;
    verify_source s;
} source;

static double read_input(void *user, int input, int64_t index)
{
    const source *s = user;
    kiln_arg arg;
    verify_dtype t = VERIFY_F32;
    kiln_program_input(s->p, input, &arg);
    verify_dtype_find(arg.dtype, &t);
    return verify_input(&s->s, t, input, index, NULL);
}

static bool put_check(packer *w, const kiln_program *p, const verify_source *vs, bool exact, kiln_diag *d)
{
    source s = {p, *vs};
    kiln_ref *ref;
    if (kiln_ref_open(w->arena, p, read_input, &s, &ref, d) != KILN_OK) return false;
    for (int o = 0; o < kiln_program_outputs(p); o++) {
        kiln_arg arg;
        verify_points at;
        int64_t index;
        double rtol, atol, value, scale;
        kiln_program_output(p, o, &arg);
        kiln_tolerance(p, o, &rtol, &atol);
        if (exact && !strcmp(arg.dtype, "f32")) rtol = 0;
        fprintf(w->text, "check buffer=out%d seed=%llu kind=%d nonzero=%d rtol=%.17g atol=%.17g points=", o, (unsigned long long)vs->seed,
                vs->kind, vs->nonzero, rtol, atol);
        verify_points_open(&at, &arg, vs->seed);
        for (int n = 0; n < POINTS && verify_points_next(&at, &index); n++) {
            if (kiln_ref_at(ref, o, index, &value, &scale) != KILN_OK) return false;
            fprintf(w->text, "%s%lld:%.17g:%.17g", n ? ";" : "", (long long)index, value, scale);
        }
        fputc('\n', w->text);
    }
    return true;
}

static bool put_checks(packer *w, const kiln_program *p, kiln_bytes text, kiln_diag *d)
{
    int64_t elements = 0;
    kiln_arg arg;
    verify_source s = {.seed = 0x6b696c6e, .nonzero = strpbrk(text.p, "/%") != NULL};
    for (int i = 0; i < kiln_program_inputs(p); i++) {
        kiln_program_input(p, i, &arg);
        elements += arg.elems;
    }
    s.kind = VERIFY_INTEGER;
    if (elements <= SMALL_ELEMENTS && verify_text_is_exact(text.p) && !put_check(w, p, &s, true, d)) return false;
    s.kind = VERIFY_RANDOM; /* last: what is timed */
    return put_check(w, p, &s, false, d);
}

static bool write_file(packer *w, const char *name, const worker_blob *b)
{
    char path[700];
    snprintf(path, sizeof path, "%s/%s", w->cli->output, name);
    FILE *f = fopen(path, "wb");
    bool ok = f && fwrite(b->p, 1, b->n, f) == b->n;
    if (f) ok = fclose(f) == 0 && ok;
    if (!ok) cli_fail(CANT_CREATE, "%s cannot be written", path);
    return ok;
}

/* Candidates that the toolchain does not make are left out and said so; they do not end the bundle. */
static bool pack_candidate(packer *w, const kiln_program *p, const kiln_candidate *c, const char *module)
{
    kiln_kernel *k;
    kiln_diag d = {0};
    worker_blob ptx = {0}, cubin = {0};
    worker_error e = {0};
    char *log = NULL, file[80];
    const char *arch = kiln_hw_arch(w->hw);
    bool ok = kiln_generate(w->arena, p, w->hw, c->trace, &k, &d) == KILN_OK;
    if (!ok) snprintf(e.message, sizeof e.message, "%.500s", d.message);
    if (ok && build_nvrtc_knows(&w->tools, arch))
        ok = worker_compile_cuda(&w->tools, k->source, arch, false, true, COMPILE_MS, &ptx, &cubin, &log, &e);
    else if (ok)
        ok = worker_compile_ptx(&w->tools, k->source, arch, COMPILE_MS, &ptx, &e);
    if (ok) {
        snprintf(file, sizeof file, "%s.%s", module, cubin.p ? "cubin" : "ptx");
        ok = write_file(w, file, cubin.p ? &cubin : &ptx);
        if (ok) fprintf(w->text, "module id=%s file=%s\n", module, file);
        if (ok) put_kernel(w, p, k, c, module);
    } else {
        fprintf(stderr, "kiln: %s is left out: %.300s\n", module, e.message);
    }
    free(ptx.p), free(cubin.p), free(log);
    return ok;
}

static int pack_request(packer *w, kiln_bytes line)
{
    kiln_request *r;
    kiln_diag d = {0};
    kiln_keys keys;
    kiln_candidates *list;
    kiln_bytes text;
    if (kiln_request_json(w->arena, line, &r, &d) != KILN_OK ||
        kiln_keys_of(w->arena, r->program, w->hw, r->policy, &keys, &d) != KILN_OK ||
        kiln_construct_request(w->arena, r, w->hw, w->cli->k, &list, &d) != KILN_OK ||
        kiln_program_text(w->arena, r->program, &text) != KILN_OK) {
        fprintf(stderr, "kiln: request %d is left out: %s %s\n", w->groups + 1, d.pointer, d.message);
        w->left_out++;
        return OK;
    }
    fprintf(w->text, "group id=g%d key=%s target=%s program=", w->groups, keys.kernel, kiln_hw_id(w->hw));
    put_encoded(w->text, text);
    fputc('\n', w->text);
    for (int i = 0; i < kiln_program_inputs(r->program) + kiln_program_outputs(r->program); i++) {
        kiln_arg a;
        int nin = kiln_program_inputs(r->program);
        if (i < nin)
            kiln_program_input(r->program, i, &a);
        else
            kiln_program_output(r->program, i - nin, &a);
        fprintf(w->text, i < nin ? "buffer id=in%d dtype=%s elems=%lld input=%d\n" : "buffer id=out%d dtype=%s elems=%lld\n",
                i < nin ? i : i - nin, a.dtype, (long long)a.elems, i);
    }
    int before = w->kernels;
    for (int i = 0; i < list->n; i++) {
        char module[64];
        snprintf(module, sizeof module, "g%dk%d", w->groups, i);
        if (pack_candidate(w, r->program, &list->c[i], module))
            w->kernels++;
        else
            w->left_out++;
    }
    if (w->kernels > before && !put_checks(w, r->program, text, &d)) return cli_diag(&d);
    w->groups++;
    return OK;
}

static int pack(packer *w, char *requests)
{
    int status = OK;
    for (char *next, *l = requests; l && *l && status == OK; l = next) {
        next = strchr(l, '\n');
        if (next) *next++ = 0;
        if (!*l || *l == '#') continue;
        w->arena = build_arena(NULL);
        if (!w->arena) return cli_fail(SOFTWARE, "out of memory");
        status = pack_request(w, (kiln_bytes){l, strlen(l)});
        kiln_arena_close(w->arena);
    }
    return status;
}

int cmd_gpu_bundle(struct cli *c)
{
    packer w = {.cli = c};
    char path[600];
    size_t n;
    if (c->nargs != 1 || !c->output)
        return cli_fail(USAGE, "gpu-bundle FILE -o DIR: requests as JSON, one a line, and a folder that is there");
    if (!strcmp(c->target, "host")) return cli_fail(USAGE, "gpu-bundle wants --target, a GPU: nvidia-h200");
    w.hw = cli_hw(c, c->target);
    if (!w.hw) return DATA;
    if (strcmp(kiln_hw_language(w.hw), "cuda")) return cli_fail(DATA, "%s is not programmed in CUDA", kiln_hw_id(w.hw));
    workers_find_tools(c->exe_dir, &w.tools);
    char *requests = cli_read_file(c, c->args[0], &n);
    if (!requests) return NO_INPUT;
    snprintf(path, sizeof path, "%s/bundle.txt", c->output);
    w.text = fopen(path, "w");
    int status = w.text ? OK : cli_fail(CANT_CREATE, "%s cannot be written", path);
    if (w.text) {
        fprintf(w.text, "# Kiln %s for %s\n", kiln_fingerprint(), kiln_hw_id(w.hw));
        status = pack(&w, requests);
        if (fclose(w.text) && status == OK) status = cli_fail(CANT_CREATE, "%s cannot be written", path);
    }
    free(requests);
    printf("%d workloads, %d kernels, %d left out\n", w.groups, w.kernels, w.left_out);
    return status == OK && !w.kernels ? cli_fail(DATA, "no kernel could be made") : status;
}
