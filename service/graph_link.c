/* The last step of a model: its function, its weights in one file, the record that names both and every kernel. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "service/graph_flow.h"
#include "workers/arena.h"
#include "workers/build.h"

/* All weights that the client sent, where the plan says. NULL: there are none, or no memory. */
static char *pack(const kiln_plan *p)
{
    char *all = p->weights_bytes > 0 ? calloc(1, (size_t)p->weights_bytes) : NULL;
    for (int i = 0; all && i < p->nweights; i++)
        if (p->weights[i].offset >= 0) memcpy(all + p->weights[i].offset, p->weights[i].data, p->weights[i].n);
    return all;
}

static void put_artifact(cache_record *r, cache_blob *blobs, const char *kind, const char *bytes, size_t n)
{
    uint8_t digest[32];
    cache_artifact *x = &r->artifacts[r->nartifacts];
    *x = (cache_artifact){.bytes = (int64_t)n};
    snprintf(x->kind, sizeof x->kind, "%s", kind);
    cache_sha256(bytes, n, digest);
    kiln_hex(digest, 32, x->digest);
    memcpy(blobs[r->nartifacts].digest, x->digest, sizeof x->digest);
    blobs[r->nartifacts++].bytes = (kiln_bytes){bytes, n};
}

/* No better than the least of its kernels. */
static enum cache_verification verification_of(const graph_kernel *k, int n)
{
    enum cache_verification least = CACHE_RUN;
    for (int i = 0; i < n; i++)
        for (int v = CACHE_PENDING; v < (int)least; v++)
            if (!strcmp(k[i].verification, cache_verification_text((enum cache_verification)v))) least = (enum cache_verification)v;
    return least;
}

static void name_record(cache_record *r, const service_graph_ask *a, kiln_bytes manifest, const kiln_hw *hw)
{
    snprintf(r->key, sizeof r->key, "%s", a->key);
    snprintf(r->workload, sizeof r->workload, "kw1-%s", a->key + 4);
    snprintf(r->build, sizeof r->build, "kb1-");
    uint8_t digest[32];
    kiln_sha256(manifest.p, manifest.n, digest);
    kiln_hex(digest, 32, r->build + 4);
    snprintf(r->origin, sizeof r->origin, "constructed");
    snprintf(r->target, sizeof r->target, "%s", kiln_hw_id(hw));
    r->canon = (kiln_bytes){a->canon, strlen(a->canon)};
    r->trace = (kiln_bytes){"", 0};
    r->manifest = manifest;
}

/* The model's host side: of a CPU the function over the kernels, of a GPU the launcher, whose text names what was built. */
typedef struct host_side {
    kiln_bytes text, manifest;
    const char *kind;
    worker_blob so;
    kiln_arena *arena;
} host_side;

static service_reply *make_host_side(service_app *app, const kiln_plan *p, const kiln_hw *hw, graph_entry *entry, host_side *h)
{
    int64_t deadline = build_now_ms() + app->config.deadline_ms;
    service_reply *problem = NULL;
    worker_error e = {0};
    *h = (host_side){.text = p->source, .manifest = p->manifest, .kind = "source"};
    if (!strcmp(kiln_hw_language(hw), "cuda")) {
        h->kind = "launcher";
        h->arena = worker_arena(&deadline);
        problem = !h->arena ? service_problem(503, "out-of-memory", "out of memory", NULL, NULL)
                            : graph_images(app, h->arena, p, hw, &h->text, &h->manifest);
    }
    if (problem) return problem;
    graph_entry *own = entry ? NULL : graph_entry_begin(app, h->text), *x = entry ? entry : own;
    bool ok = x && graph_entry_end(x, &h->so, &e);
    graph_entry_drop(own);
    return ok ? NULL : service_problem(500, *e.slug ? e.slug : "internal", "the model's function could not be compiled", e.message, NULL);
}

static service_reply *store(service_app *app, cache_record *r, const cache_blob *blobs)
{
    bool stored = false;
    enum cache_status s = cache_put(app->cache, r, blobs, r->nartifacts, &stored);
    if (s == CACHE_FULL) return service_problem(507, "store-full", "the store is full", "its disk has no room for the model", NULL);
    return s == CACHE_OK ? NULL : service_problem(503, "store-unavailable", "the model could not be stored", NULL, NULL);
}

service_reply *graph_link(service_app *app, const service_graph_ask *a, const kiln_plan *p, const kiln_hw *hw, const graph_kernel *kernels,
                          graph_entry *entry)
{
    cache_blob blobs[8] = {0};
    cache_record r = {0};
    host_side h;
    char name[96], *weights = pack(p);
    if (p->weights_bytes && !weights) return service_problem(503, "out-of-memory", "out of memory for the weights", NULL, NULL);
    service_reply *problem = make_host_side(app, p, hw, entry, &h);
    name_record(&r, a, h.manifest, hw);
    snprintf(name, sizeof name, "graph of %d kernels in %d steps", p->nkernels, p->nsteps);
    r.name = name;
    r.verification = verification_of(kernels, p->nkernels);
    snprintf(r.verdict, sizeof r.verdict, "{\"how\":\"each kernel on its own\",\"kernels\":%d}", p->nkernels);
    for (int i = 0; i < p->nsteps; i++)
        if (p->steps[i].kernel >= 0) r.predicted_us += kernels[p->steps[i].kernel].predicted_us;
    put_artifact(&r, blobs, h.kind, h.text.p, h.text.n);
    if (h.so.p) put_artifact(&r, blobs, "so", h.so.p, h.so.n);
    if (weights) put_artifact(&r, blobs, "weights", weights, (size_t)p->weights_bytes);
    if (!problem) problem = store(app, &r, blobs);
    free(weights);
    free(h.so.p);
    kiln_arena_close(h.arena);
    return problem;
}
