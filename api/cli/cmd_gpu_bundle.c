/* kiln gpu-bundle FILE -o DIR: kernels of the requests in FILE (JSON, one a line), compiled for a GPU, with what is needed to check and
 * measure them on a host that has one. workers/gpu/README.md has the format; `make gpu-bundle` adds the runner and packs it. */
#include "api/cli/cli.h"
#include "workers/arena.h"
#include "workers/build.h"
#include "workers/gpu/text.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COMPILE_MS = 120000 };

typedef struct packer {
    struct cli *cli;
    worker_tools tools;
    FILE *text;
    kiln_arena *arena; /* of the request at hand */
    kiln_hw *hw;
    int kernels, groups, left_out;
} packer;

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
        if (ok) gpu_put_kernel(w->text, p, k, c->rank, c->predicted_us, module);
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
    char id[32];
    snprintf(id, sizeof id, "g%d", w->groups);
    gpu_put_group(w->text, id, keys.kernel, kiln_hw_id(w->hw), r->program, text);
    int before = w->kernels;
    for (int i = 0; i < list->n; i++) {
        char module[64];
        snprintf(module, sizeof module, "g%dk%d", w->groups, i);
        if (pack_candidate(w, r->program, &list->c[i], module))
            w->kernels++;
        else
            w->left_out++;
    }
    if (w->kernels > before && !gpu_put_checks(w->text, w->arena, r->program, text, &d)) return cli_diag(&d);
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
        w->arena = worker_arena(NULL);
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
