/* Runs a CPU kernel by its ABI: serially, then in parallel with tasks in scrambled order; and times it. */
#include "workers/harness.h"
#include <dlfcn.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PARALLEL = 3, WARM_UPS = 2, MOST_RUNS = 10000, EARLY_BYTES = 64 << 20 };
static const double time_bound_ms = 100;

typedef int32_t (*entry_fn)(const void *const *inputs, void *const *outputs, void *workspace, const kiln_pool *pool);
typedef int64_t (*pack_fn)(const void *input, void *packed);
typedef struct kernel {
    entry_fn entry;
    int64_t (*workspace)(int32_t);
    pack_fn pack[VERIFY_MAX_ARGS]; /* of inputs that the kernel takes in an order of its own; else NULL */
    harness_region packed[VERIFY_MAX_ARGS];
    harness_region ws;
} kernel;

static void *symbol(harness *h, const char *name, const char *tail)
{
    char full[120];
    snprintf(full, sizeof full, "%s%s", name, tail);
    void *p = dlsym(h->so, full);
    if (p == NULL) {
        harness_say("fail the shared object exports no %s", full);
    }
    return p;
}

static bool find_kernel(harness *h, kernel *k)
{
    int32_t (*version)(void);
    void *p = symbol(h, "kiln_abi_version", "");
    const char *name = symbol(h, "kiln_entry", "");
    if (p == NULL || name == NULL) {
        return false;
    }
    memcpy(&version, &p, sizeof p);
    if (version() != 1) {
        harness_say("fail kiln_abi_version() is %d, expected 1", (int)version());
        return false;
    }
    if (strcmp(name, h->job->entry) != 0) {
        harness_say("fail kiln_entry is \"%.80s\", expected \"%s\"", name, h->job->entry);
        return false;
    }
    p = symbol(h, name, "");
    void *w = symbol(h, name, "_workspace");
    memcpy(&k->entry, &p, sizeof p);
    memcpy(&k->workspace, &w, sizeof w);
    k->ws = (harness_region){0};
    for (int i = 0; i < h->job->nin; i++) {
        char full[120];
        snprintf(full, sizeof full, "%s_prepack_%d", name, i);
        void *pack = dlsym(h->so, full);
        memcpy(&k->pack[i], &pack, sizeof pack);
        k->packed[i] = (harness_region){0};
    }
    return p != NULL && w != NULL;
}

/* What the caller of a kernel with constants does once: makes the packed copies, which end at a guard too. */
static bool pack_inputs(harness *h, kernel *k, int kind)
{
    for (int i = 0; i < h->job->nin; i++) {
        if (k->pack[i] == NULL) {
            continue;
        }
        int64_t n = k->pack[i](NULL, NULL);
        harness_region *r = &k->packed[i];
        if (n < 0 || n >> 20 > VERIFY_ROOM) {
            harness_say("fail input %d packed is %lld bytes", i, (long long)n);
            return false;
        }
        if (r->map == NULL && !harness_map(r, n, -1, 0, "packed input", i)) {
            return false;
        }
        harness_place(r, r->pages - (n + 63) / 64 * 64, VERIFY_POISON_A);
        harness_at("prepack", kind);
        k->pack[i](h->in[i].data, r->data);
        if (!harness_canary_ok(r)) {
            return false;
        }
    }
    return true;
}

/* Ends at the guard but for the rounding up to its alignment of 64. Kept from run to run, poisoned anew for each: to unmap is dear beside
 * threads that spin. */
static bool open_workspace(kernel *k, int threads, unsigned char poison)
{
    int64_t n = k->workspace(threads);
    if (n < 0 || n >> 20 > VERIFY_ROOM) {
        harness_say("fail the workspace for %d threads is %lld bytes", threads, (long long)n);
        return false;
    }
    if (n > k->ws.pages) {
        harness_unmap(&k->ws);
        if (!harness_map(&k->ws, n, -1, 0, "the workspace", -1)) {
            return false;
        }
    }
    if (k->ws.map != NULL) {
        k->ws.bytes = n;
        harness_place(&k->ws, k->ws.pages - (n + 63) / 64 * 64, poison);
    }
    return true;
}

static bool call(harness *h, const kernel *k, harness_region *outputs, const kiln_pool *pool)
{
    const void *in[VERIFY_MAX_ARGS + 1] = {0};
    void *out[VERIFY_MAX_ARGS + 1] = {0};
    for (int i = 0; i < h->job->nin; i++) {
        in[i] = k->pack[i] ? k->packed[i].data : h->in[i].data;
    }
    for (int i = 0; i < h->job->nout; i++) {
        out[i] = outputs[i].data;
    }
    int rc = (int)k->entry(in, out, k->ws.data, pool);
    if (rc != 0) {
        harness_say("fail the kernel returned %d", rc);
    }
    return rc == 0 && (k->ws.map == NULL || harness_canary_ok(&k->ws));
}

static bool run_once(harness *h, kernel *k, int input_kind, harness_region *outputs, unsigned char poison, const kiln_pool *pool)
{
    if (!open_workspace(k, pool ? PARALLEL : 1, poison)) {
        return false;
    }
    harness_at(pool ? "parallel" : "serial", input_kind);
    return call(h, k, outputs, pool);
}

/* h: with the arrays of this kind. How tasks are spread, and what is written, does not depend on the values: the first kind shows it by a second run,
 * the others run once, on the pool, which is the sooner done. */
static bool one_kind(harness *h, kernel *k, int kind, const kiln_pool *pool)
{
    int of = h->job->source[kind].kind;
    bool first = kind == 0, ok = pack_inputs(h, k, of) && run_once(h, k, of, h->a, VERIFY_POISON_A, first ? NULL : pool);
    for (int o = 0; ok && !first && o < h->job->nout; o++) {
        ok = harness_canary_ok(&h->a[o]);
    }
    if (ok && first) {
        harness_move(h);
        ok = run_once(h, k, of, h->b, VERIFY_POISON_B, pool) && harness_compare(h, "differs between the serial and the parallel run", false);
    }
    if (!ok) {
        return false;
    }
    harness_say("kind %d", kind);
    return true;
}

/* How many kinds' arrays are made before the kernel is there: those that are small enough to lie beside one another. */
static int early_kinds(const verify_job *j)
{
    int64_t bytes = j->slot_bytes;
    for (int i = 0; i < j->nin; i++) { bytes += j->args[i].bytes; }
    return bytes * j->nkinds <= EARLY_BYTES ? j->nkinds : 1;
}

/* Until the kernel is there; false: it will not come. A parent that was killed before this child's end was bound to its own says nothing any more,
 * and no compile takes as long as is waited here. */
static bool await_kernel(harness *h)
{
    enum { LONGEST_MS = 900000 };
    struct pollfd go = {.fd = VERIFY_GO, .events = POLLIN};
    uint64_t n;
    harness_at("loading", -1);
    return poll(&go, 1, LONGEST_MS) == 1 && read(VERIFY_GO, &n, sizeof n) == (ssize_t)sizeof n && harness_load(h);
}

bool harness_cpu(harness *h)
{
    static harness each[VERIFY_KINDS];
    kernel k;
    kiln_pool pool;
    int early = early_kinds(h->job);
    bool ok = true;
    for (int i = 0; i < early && ok; i++) {
        each[i] = *h;
        ok = harness_open(&each[i], i) && (i > 0 || harness_second(&each[i]));
    }
    /* The threads are asleep again when the kernel comes. */
    if (ok && harness_pool_open(PARALLEL, true, false, &pool) == NULL) {
        harness_say("fail no threads");
        return false;
    }
    ok = ok && (!h->job->wait || await_kernel(h)) && find_kernel(h, &k) && open_workspace(&k, PARALLEL, VERIFY_POISON_A);
    double start = verify_now_ms();
    for (int i = 0; i < h->job->nkinds && ok; i++) {
        double used = verify_now_ms() - start;
        if (i > 0 && used + used / i > h->job->budget_ms) {
            break;
        }
        if (i >= early) { each[i] = *h; }
        each[i].so = h->so;
        ok = (i < early || harness_open(&each[i], i)) && one_kind(&each[i], &k, i, &pool);
        if (early < h->job->nkinds) { harness_close(&each[i]); } /* what is small goes with the process, as the threads do */
    }
    return ok;
}

static int by_value(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

bool harness_time(harness *h)
{
    static double us[MOST_RUNS];
    kernel k;
    kiln_pool pool;
    int n = 0, want = h->job->runs < 1 ? 1 : h->job->runs > MOST_RUNS ? MOST_RUNS : h->job->runs;
    if (!find_kernel(h, &k) || !harness_open(h, 0) || !pack_inputs(h, &k, -1) || !open_workspace(&k, h->job->threads, VERIFY_POISON_B)) {
        return false;
    }
    harness_pool *threads = harness_pool_open(h->job->threads, false, true, &pool);
    if (threads == NULL) {
        harness_say("fail no threads");
        return false;
    }
    const kiln_pool *use = h->job->threads > 1 ? &pool : NULL;
    bool ok = true;
    harness_at("timing", -1);
    double start = verify_now_ms();
    for (int i = 0; i < WARM_UPS && ok; i++) {
        ok = call(h, &k, h->a, use);
    }
    while (ok && n < MOST_RUNS && (n < want || verify_now_ms() - start < time_bound_ms)) {
        double t = verify_now_ms();
        ok = call(h, &k, h->a, use);
        us[n++] = (verify_now_ms() - t) * 1e3;
        if (n >= 3 && verify_now_ms() - start > h->job->budget_ms) {
            break;
        }
    }
    harness_pool_close(threads);
    if (ok) {
        qsort(us, (size_t)n, sizeof *us, by_value);
        harness_say("time %.17g %.17g %.17g", us[n / 2], us[n / 10], us[n - 1 - n / 10]);
    }
    return ok;
}
