/* Kiln's kernels and their peers on a list of operators: every round runs all contestants one after the other, each after a call of its own
 * that is not timed, so that all find the caches as repetition leaves them; ratios are taken within rounds. See README.md. */
#include "load-tests/kernels/cases.h"
#include "load-tests/kernels/ceiling.h"
#include "load-tests/kernels/own.h"
#include "load-tests/kernels/report.h"
#include "tests/arena.h"
#include <dlfcn.h>
#include <stdio.h>
#include <time.h>

enum { FEW_ROUNDS = 3, SLOW = 12, VERY_SLOW = 100, LONG_US = 50000, ENOUGH_US = 1000000 };
typedef struct options {
    const char *shapes, *only, *spec, *peers, *json, *table;
    int threads, rounds, loops; /* loops: 0: none, then Kiln's output, held against the interpreter, is what the others are compared with */
    int64_t most_bytes;
} options;

typedef struct peer {
    const char *name;
    const bench_form *forms;
} peer;
static const struct {
    const char *name, *package;
} peer_rows[] = {
#define X(name, package, ...) {#name, package},
#include "load-tests/kernels/peers.def"
};
enum { PEERS = sizeof peer_rows / sizeof *peer_rows };

/* Peers' objects that are there; bench.sh builds those whose library is installed. */
static int peers_load(const char *dir, peer *p)
{
    int n = 0;
    for (int i = 0; i < PEERS; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/peer_%s.so", dir, peer_rows[i].name);
        void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        bench_forms_fn forms = NULL;
        if (so) { *(void **)&forms = dlsym(so, "bench_forms"); }
        if (forms) {
            p[n++] = (peer){peer_rows[i].name, forms()};
        } else {
            printf("peer %s is absent (package %s): %s\n", peer_rows[i].name, peer_rows[i].package, so ? "no bench_forms" : dlerror());
        }
    }
    return n;
}

/* Small kernels run many times a round, so that the clock is not what is measured. Several threads are warm once all have had work for a while: a
 * virtual machine's processor that has been idle takes milliseconds to come back. */
static double timed(const bench_run *r, int repeat, int warm, int threads)
{
    const double awake_us = threads > 1 ? 15000 : 0;
    double begun = now_us();
    for (int i = 0; i < warm || (warm && now_us() - begun < awake_us); i++) { r->call(r->state); }
    double t = now_us();
    for (int i = 0; i < repeat; i++) { r->call(r->state); }
    return (now_us() - t) / repeat;
}

/* Threads of peers look out for work for 15 to 150 ms after their last call, on the processors that the next contestant wants: until none does. */
static void let_settle(int threads)
{
    enum { LOOK_NS = 5000000, LOOKS = 60, QUIET = 5 }; /* a look finds the process at rest when it computed less than a fifth of the time */
    double before = us_of(CLOCK_PROCESS_CPUTIME_ID); /* of all threads of the process */
    for (int i = 0; threads > 1 && i < LOOKS; i++) {
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
        double now = us_of(CLOCK_PROCESS_CPUTIME_ID);
        if (now - before < LOOK_NS / 1000.0 / QUIET) break;
        before = now;
    }
}

/* Untimed calls before the timed one. A last-level cache keeps little of what passes through it for the first time: without several calls the first
 * of those that read the same arrays would fetch them from memory for the others. */
static int warming(double us) { return us < LONG_US ? 4 : us < ENOUGH_US ? 1 : 0; }

static void measure(result *r, const bench_case *c, const bench_run *runs, int rounds, struct kiln_pool *pool, double flops)
{
    int64_t in = 0;
    int repeat[CONTESTANTS];
    double fastest = 1e30;
    ceiling top;
    for (int i = 0; i < c->nin; i++) { in += c->in_bytes[i]; }
    ceiling_open(&top, in, c->out_bytes, pool);
    for (int i = 0; i < r->n; i++) {
        double t = r->first_us[i];
        for (int again = 0; again < 2 && r->first_us[i] < LONG_US; again++) { /* the better one: it may just have been interrupted */
            let_settle(c->threads);
            double u = timed(&runs[i], 1, 1, c->threads);
            if (u < t) { t = u; }
        }
        if (t > ENOUGH_US) { r->us[i][0] = t; }
        repeat[i] = t < 1000 ? (int)(1000 / (t + 0.05)) + 1 : 1;
        int most = t > VERY_SLOW * fastest || (i && t > ENOUGH_US) ? 1 : t > SLOW * fastest ? FEW_ROUNDS : rounds;
        r->rounds[i] = most < rounds ? most : rounds;
        if (t < fastest) { fastest = t; }
    }
    for (int round = 0; round < rounds; round++) {
        for (int k = 0; k < r->n; k++) {
            int i = (k + round) % r->n;
            if (round < r->rounds[i] && (round || r->first_us[i] <= ENOUGH_US)) {
                let_settle(c->threads);
                r->us[i][round] = timed(&runs[i], repeat[i], warming(r->first_us[i]), c->threads);
            }
        }
        r->memory_us[round] = ceiling_memory_us(&top);
        r->compute_us[round] = c->by_bytes ? 0 : flops / ceiling_compute(c->dtype, pool) / 1e3;
    }
    ceiling_close(&top);
    r->flops = flops;
    r->bytes = (double)(in + c->out_bytes);
}

static void add(result *r, bench_run *runs, const char *name, const char *form)
{
    contestant *x = &r->who[r->n];
    snprintf(x->name, sizeof x->name, "%s%s%s", name, *form ? " " : "", form);
    r->first_us[r->n] = timed(&runs[r->n], 1, 0, 1);
    r->n++;
}

/* Kiln first, then loops, then peers. Loops are also the reference, itself held against the interpreter. */
static void contest(const options *o, const bench_case *c, own *own_, const char *request, kiln_hw *hw, const peer *peers, int npeers,
                    struct kiln_pool *pool, result *r)
{
    bench_run runs[CONTESTANTS];
    char why[600] = "", fast[] = "-Ofast -march=native -mprefer-vector-width=512";
    if (own_kernel(own_, c, hw, true, "", pool, &runs[r->n], r->note, sizeof r->note)) {
        add(r, runs, "kiln", "");
    } else {
        r->constructed = false;
    }
    if (r->constructed && pool) {
        own_alone(&runs[0], &runs[r->n]);
        add(r, runs, "kiln", "one thread");
        r->alone = r->n - 1;
    }
    own constant = {0};
    if (r->constructed && own_constant(&constant, request) && own_kernel(&constant, c, hw, true, "", pool, &runs[r->n], why, sizeof why)) {
        add(r, runs, "kiln packed", "");
        r->packed = r->n - 1;
    }
    int reference = o->loops || !r->constructed ? r->n : 0;
    if (reference == r->n && !own_kernel(own_, c, hw, false, "-O3 -march=native", NULL, &runs[r->n], why, sizeof why)) {
        snprintf(r->note, sizeof r->note, "plain loops: %s", why);
    } else {
        if (reference == r->n) { add(r, runs, "loops", "-O3"); }
        bool soon = o->loops && r->first_us[reference] <= ENOUGH_US;
        if (soon && own_kernel(own_, c, hw, false, fast, NULL, &runs[r->n], why, sizeof why)) {
            add(r, runs, "loops", "-Ofast");
        }
        for (int p = 0; p < npeers; p++) {
            for (const bench_form *f = peers[p].forms; f->name && r->n < CONTESTANTS; f++) {
                if (f->open(c, &runs[r->n])) { add(r, runs, peers[p].name, f->name); }
            }
        }
        void *right = malloc((size_t)c->out_bytes + 64), *out = malloc((size_t)c->out_bytes + 64);
        runs[reference].fetch(runs[reference].state, right);
        int wrong = own_judge(own_, c, right);
        if (wrong) { snprintf(r->note, sizeof r->note, "the reference's output differs from the interpreter in %d samples", wrong); }
        for (int i = 0; i < r->n; i++) {
            runs[i].fetch(runs[i].state, out);
            r->who[i].wrong = own_differ(own_, c, out, right);
        }
        r->reference_wrong = wrong;
        free(right);
        free(out);
        measure(r, c, runs, o->rounds, pool, own_->flops);
    }
    for (int i = r->n; i-- > 0;) { runs[i].drop(runs[i].state); }
    if (constant.a) { kiln_arena_close(constant.a); }
}

static bool option(options *o, const char *arg)
{
    const struct {
        const char *name;
        const char **text;
        int *number;
    } table[] = {{"shapes=", &o->shapes, NULL},   {"only=", &o->only, NULL},    {"spec=", &o->spec, NULL},
                 {"peers=", &o->peers, NULL},     {"json=", &o->json, NULL},    {"table=", &o->table, NULL},
                 {"threads=", NULL, &o->threads}, {"rounds=", NULL, &o->rounds},
                 {"loops=", NULL, &o->loops}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        size_t n = strlen(table[i].name);
        if (strncmp(arg, table[i].name, n)) { continue; }
        if (table[i].text) {
            *table[i].text = arg + n;
        } else {
            *table[i].number = atoi(arg + n);
        }
        return true;
    }
    return !strncmp(arg, "fit=", 4) && (o->most_bytes = atoll(arg + 4) << 20) > 0;
}

static kiln_hw *spec_read(kiln_arena *a, const char *path)
{
    static char text[1 << 16];
    FILE *f = fopen(path, "r");
    kiln_diag d = {0};
    kiln_hw *hw = NULL;
    if (!f) { return NULL; }
    if (kiln_hw_parse(a, (kiln_bytes){text, fread(text, 1, sizeof text, f)}, &hw, &d)) { fprintf(stderr, "%s: %s\n", path, d.message); }
    fclose(f);
    return hw;
}

static bool chosen(const char *only, const bench_case *c) { return !*only || strstr(c->family, only) || strstr(c->id, only); }

int main(int argc, char **argv)
{
    options o = {.shapes = "load-tests/kernels/shapes.csv",
                 .only = "",
                 .spec = "",
                 .peers = ".",
                 .json = "",
                 .table = "",
                 .threads = 1,
                 .rounds = 9,
                 .loops = 1,
                 .most_bytes = INT64_C(256) << 20};
    char request[4096], why[700];
    peer peers[PEERS];
    bench_case c;
    case_list list;
    for (int i = 1; i < argc; i++) {
        if (!option(&o, argv[i])) { return fprintf(stderr, "bench: %s is not understood\n", argv[i]), 64; }
    }
    if (o.rounds < 1 || o.rounds > ROUNDS || o.threads < 1) {
        return fprintf(stderr, "bench: 1 to %d rounds, 1 thread or more\n", ROUNDS), 64;
    }
    ceiling_permit();
    clock_for(o.threads);
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    kiln_hw *hw = spec_read(a, o.spec);
    if (!hw || !cases_open(&list, o.shapes, why, sizeof why)) { return fprintf(stderr, "bench: %s\n", hw ? why : "no spec"), 65; }
    int npeers = peers_load(o.peers, peers), got;
    struct kiln_pool *pool = o.threads > 1 ? pool_open(o.threads) : NULL;
    printf("ceilings: f32 %.1f GFLOP/s (%s), i8 %.1f GOP/s (%s), a pass over the bytes; %d thread%s\n", ceiling_compute("f32", pool),
           ceiling_isa("f32"), ceiling_compute("i8", pool), ceiling_isa("i8"), o.threads, o.threads > 1 ? "s" : "");
    report *rep = report_open(o.json, o.table, kiln_hw_id(hw), o.threads, o.rounds);
    while ((got = cases_next(&list, o.most_bytes, &c, request, sizeof request))) {
        result r = {.constructed = true};
        own own_ = {0};
        if (!chosen(o.only, &c)) { continue; }
        c.threads = o.threads;
        if (got < 0 || !own_open(&own_, &c, request, why, sizeof why)) {
            snprintf(r.note, sizeof r.note, "%.500s", got < 0 ? request : why);
            r.constructed = false;
        } else {
            contest(&o, &c, &own_, request, hw, peers, npeers, pool, &r);
        }
        report_case(rep, &c, &r);
        own_close(&own_, &c);
    }
    int failed = report_close(rep);
    pool_close(pool);
    kiln_arena_close(a);
    return failed ? 1 : 0;
}
