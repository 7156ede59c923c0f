/* The host side of a model on a GPU: how its kernels are launched, from their records; the launcher; the manifest that names every image. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "service/graph_flow.h"
#include "workers/arena.h"
#include "workers/build.h"

static const cache_artifact *artifact(const cache_record *r, const char *kind)
{
    for (int i = 0; r && i < r->nartifacts; i++)
        if (!strcmp(r->artifacts[i].kind, kind)) return &r->artifacts[i];
    return NULL;
}

/* What the driver can load, best first, or else what a toolchain can make it of. */
static const cache_artifact *image_of(const cache_record *r)
{
    static const char *const kinds[] = {"cubin", "ptx", "source"};
    const cache_artifact *found = NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && !found; i++) found = artifact(r, kinds[i]);
    return found;
}

/* The record's kernel as data. NULL: another version of Kiln made it, so that its launches may be others. */
static kiln_kernel *kernel_of(kiln_arena *a, const kiln_plan *p, int i, const kiln_hw *hw, const cache_record *r)
{
    kiln_kernel *k = NULL;
    kiln_diag d = {0};
    uint8_t digest[32];
    char hex[65];
    const cache_artifact *source = artifact(r, "source");
    if (!source || kiln_generate(a, p->kernels[i], hw, r->trace, &k, &d) != KILN_OK) return NULL;
    cache_sha256(k->source.p, k->source.n, digest);
    kiln_hex(digest, 32, hex);
    return strcmp(hex, source->digest) ? NULL : k;
}

/* Built by this version, as the record's next. */
static cache_record *rebuilt(service_app *app, kiln_arena *a, const kiln_plan *p, int i, const kiln_hw *hw)
{
    kiln_request *request;
    cache_record *r = NULL;
    build_result result;
    if (kiln_plan_request(a, p, i, &request) != KILN_OK) return NULL;
    build_order o = {.tools = &app->tools, .cache = app->cache, .request = request, .hw = hw, .keys = &p->keys[i], .candidates = SERVICE_CANDIDATES,
                     .attempts = SERVICE_ATTEMPTS, .verify_ms = app->config.verify_ms, .runs_here = service_runs_here(hw),
                     .deadline = build_now_ms() + app->config.deadline_ms};
    build_kernel(&o, &result);
    if (result.end != BUILD_OK || cache_get_version(app->cache, p->keys[i].kernel, result.version, &r) != CACHE_OK) return NULL;
    return r;
}

typedef struct images {
    kiln_image *list;
    char (*digests)[65];
} images;

static service_reply *take(service_app *app, kiln_arena *a, const kiln_plan *p, int i, const kiln_hw *hw, images *out)
{
    cache_record *r = NULL;
    const char *tier;
    enum cache_status s = cache_get(app->cache, p->keys[i].kernel, p->keys[i].kernel_canon, &r, &tier);
    kiln_kernel *k = s == CACHE_OK ? kernel_of(a, p, i, hw, r) : NULL;
    if (s == CACHE_OK && !k) {
        cache_release(r);
        r = rebuilt(app, a, p, i, hw);
        k = r ? kernel_of(a, p, i, hw, r) : NULL;
    }
    const cache_artifact *image = k ? image_of(r) : NULL;
    if (image) {
        memcpy(out->digests[i], image->digest, sizeof out->digests[i]);
        out->list[i] = (kiln_image){.kernel = k, .sha256 = out->digests[i]};
        out->list[i].kind = !strcmp(image->kind, "cubin") ? "cubin" : !strcmp(image->kind, "ptx") ? "ptx" : "source";
    }
    if (r) cache_release(r);
    return image ? NULL : service_problem(503, "store-unavailable", "a kernel of the model cannot be had from the store", p->keys[i].kernel, NULL);
}

service_reply *graph_images(service_app *app, kiln_arena *a, const kiln_plan *p, const kiln_hw *hw, kiln_bytes *launcher, kiln_bytes *manifest)
{
    images x = {calloc((size_t)p->nkernels + 1, sizeof *x.list), calloc((size_t)p->nkernels + 1, sizeof *x.digests)};
    kiln_diag d = {0};
    service_reply *problem = x.list && x.digests ? NULL : service_problem(503, "out-of-memory", "out of memory", NULL, NULL);
    for (int i = 0; i < p->nkernels && !problem; i++) problem = take(app, a, p, i, hw, &x);
    if (!problem && (d.status = kiln_plan_link(a, p, hw, x.list, launcher, manifest, &d)) != KILN_OK) problem = service_problem_diag(&d);
    free(x.list);
    free(x.digests);
    return problem;
}
