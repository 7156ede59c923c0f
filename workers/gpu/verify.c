/* A kernel's outputs: against the points that the reference computed, and against themselves over another poison. */
#include "workers/gpu/gpu.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Runs the kernel on set 0 over poisoned outputs and brings them back behind one another. */
static int run_once(gpu_device *d, gpu_group *g, const gpu_kernel *k, int poison, char *out)
{
    int r = 0;
    for (int i = 0; i < g->nbuffers && !r; i++)
        if (g->buffers[i].input < 0) r = d->cu.MemsetD8(g->buffers[i].set[0], (unsigned char)poison, (size_t)g->buffers[i].bytes);
    if (!r) r = gpu_launch(d, g, k, 0);
    if (!r) r = d->cu.StreamSynchronize(d->stream);
    for (int i = 0; i < g->nbuffers && !r; i++) {
        const gpu_buffer *b = &g->buffers[i];
        if (b->input != -1) continue;
        r = d->cu.MemcpyDtoH(out, b->set[0], (size_t)b->bytes);
        out += b->bytes;
    }
    return r;
}

static int guards_hold(gpu_device *d, const gpu_group *g, gpu_verdict *v)
{
    unsigned char guard[GPU_GUARD];
    for (int i = 0; i < g->nbuffers; i++) {
        const gpu_buffer *b = &g->buffers[i];
        int r = d->cu.MemcpyDtoH(guard, b->set[0] + (uint64_t)b->bytes, GPU_GUARD), k = 0;
        while (k < GPU_GUARD && guard[k] == VERIFY_CANARY) k++;
        if (!r && k < GPU_GUARD) r = d->cu.MemsetD8(b->set[0] + (uint64_t)b->bytes, VERIFY_CANARY, GPU_GUARD); /* the next kernel's is whole */
        if (r) return r;
        if (k == GPU_GUARD || !v->ok) continue;
        v->ok = false;
        snprintf(v->detail, sizeof v->detail, "byte %d behind buffer %s was written", k, b->id);
    }
    return 0;
}

static void same(const gpu_group *g, const char *one, const char *two, gpu_verdict *v)
{
    v->deterministic = true;
    for (int i = 0; i < g->nbuffers; i++) {
        const gpu_buffer *b = &g->buffers[i];
        if (b->input != -1) continue;
        int size = verify_dtype_bytes(b->dtype);
        bool differ = memcmp(one, two, (size_t)b->bytes) != 0;
        for (int64_t k = 0; differ && k < b->elems; k++) {
            const unsigned char *x = (const unsigned char *)one + k * size, *y = (const unsigned char *)two + k * size;
            if (!memcmp(x, y, (size_t)size)) continue;
            bool unwritten =
                x[0] == VERIFY_POISON_A && y[0] == VERIFY_POISON_B && x[size - 1] == VERIFY_POISON_A && y[size - 1] == VERIFY_POISON_B;
            v->deterministic = false;
            if (unwritten && v->ok) {
                v->ok = false;
                snprintf(v->detail, sizeof v->detail, "%s[%lld] is not written", b->id, (long long)k);
            }
            if (unwritten) return;
        }
        one += b->bytes, two += b->bytes;
    }
}

static void compare(const gpu_group *g, const gpu_check *c, const char *outputs, gpu_verdict *v)
{
    for (int i = 0; i < c->buffer; i++)
        if (g->buffers[i].input == -1) outputs += g->buffers[i].bytes;
    for (int i = 0; i < c->npoints; i++) {
        const gpu_point *p = &c->points[i];
        double got = verify_load(g->buffers[c->buffer].dtype, outputs, p->index),
               error = fabs(got - p->value) / (c->rtol * p->scale + c->atol);
        if (got == p->value || (isnan(got) && isnan(p->value))) error = 0; /* of infinities and NaNs there is no difference */
        v->checked++;
        if (!(error <= v->max_error)) v->max_error = error;
        if (error <= 1 || !v->ok) continue;
        v->ok = false;
        snprintf(v->detail, sizeof v->detail, "%s[%lld] is %.9g and should be %.9g", g->buffers[c->buffer].id, (long long)p->index, got,
                 p->value);
    }
}

static bool same_source(const verify_source *a, const verify_source *b) { return a->seed == b->seed && a->kind == b->kind; }

int gpu_verify(gpu_device *d, gpu_group *g, const gpu_kernel *k, gpu_verdict *v)
{
    int64_t bytes = 1;
    int r = 0;
    *v = (gpu_verdict){.ok = true, .deterministic = true};
    for (int i = 0; i < g->nbuffers; i++)
        if (g->buffers[i].input == -1) bytes += g->buffers[i].bytes;
    char *one = malloc((size_t)bytes), *two = malloc((size_t)bytes);
    if (!one || !two) r = 2;
    for (int i = 0; i < g->nchecks && !r; i++) {
        const gpu_check *c = &g->checks[i];
        bool fresh = !i || !same_source(&c->source, &g->checks[i - 1].source);
        if (fresh && g->nchecks > 1 && !same_source(&g->checks[0].source, &g->checks[g->nchecks - 1].source))
            r = gpu_fill(d, g, &c->source);
        if (fresh && !r) r = run_once(d, g, k, VERIFY_POISON_A, one);
        if (fresh && !r) r = run_once(d, g, k, VERIFY_POISON_B, two);
        if (!r && fresh) r = guards_hold(d, g, v);
        if (r) break;
        if (fresh) same(g, one, two, v);
        compare(g, c, one, v);
    }
    free(one);
    free(two);
    return r;
}
