/* The static and the emulation gate over kernels that are constructed: the 119 operators of ROLLER (OSDI'22) at full size, and a grid of families,
 * dtypes, layouts and ragged shapes. On nvidia-a100 (sm_80), nvidia-h200 (sm_90a) and, families alone, nvidia-l40s (sm_89) each is assembled,
 * without a spill, and run in the emulator:
 * an operator's own schedule on a reduced shape, or the reduced shape's own where the other does not fit. For the devices that NVRTC has left behind
 * (V100, K80) it is counted how many give PTX.
 * usage: gpu-sweep [-s] [-d DEVICE] [-f FAMILY] [-r REQUESTS] [OPERATORS.csv]; -s: a few of each; -d: one device alone; -f: families whose names
 * begin so, alone; -r: requests of a file instead, a JSON object a line, at their own sizes. Status 0 only when everything held. */
#include "tests/arena.h"
#include "tests/golden/ops_table.h"
#include "workers/child.h"
#include "workers/gate.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static worker_tools tools;
static bool brief;
static const char *chosen = "";
static const struct { const char *id, *arch; bool operators; } devices[] = {{"nvidia-a100", "sm_80", true}, {"nvidia-l40s", "sm_89", false},
                                                                              {"nvidia-h200", "sm_90a", true}};
static const struct { const char *id, *arch; } older[] = {{"nvidia-v100", "sm_70"}, {"nvidia-k80", "sm_37"}};
enum { DEVICES = sizeof devices / sizeof *devices };
typedef struct tally { int tried, constructed, assembled, emulated, own, spilled, later; } tally;
enum { NEXT = 8 }; /* schedules that are tried where the assembler spoils one */

typedef struct family { const char *name, *dtypes; int least; const char *expr, *inputs; bool often; } family;
static const family families[] = {
#define F(family, dtypes, least, expr, inputs) {family, dtypes, least, expr, inputs, false},
#define S(family, dtypes, least, expr, inputs) {family, dtypes, least, expr, inputs, true},
#include "tests/golden/gpu_families.def"
};

static kiln_kernel *kernel_of(kiln_arena *a, const kiln_request *r, const kn_hw *hw, kiln_bytes trace, const char **why)
{
    static kiln_diag d;
    kiln_candidates *c = NULL;
    kiln_kernel *k = NULL;
    d = (kiln_diag){0};
    if (!trace.n && kiln_construct(a, r->program, hw, "default", 1, &c, &d) == KILN_OK) trace = c->c[0].trace;
    if (!trace.n || kiln_generate(a, r->program, hw, trace, &k, &d)) *why = d.message;
    return k;
}

/* False: it does not assemble, or not without spills. */
static bool assembles(const kiln_kernel *k, const char *arch, const char *what, tally *n)
{
    worker_blob ptx = {0}, cubin = {0};
    worker_error e = {0};
    gate_report g = {0};
    char *log = NULL;
    if (!tools.nvrtc[0]) return false;
    bool ok = worker_compile_cuda(&tools, k->source, arch, true, true, 60000, &ptx, &cubin, &log, &e);
    if (ok) gate_read(log, k, &g);
    if (!ok || g.why[0]) printf("%s, %s: %s\n", what, arch, ok ? g.why : e.message);
    n->spilled += ok && g.spill_bytes > 0;
    free(log);
    free(ptx.p);
    free(cubin.p);
    return ok && !g.why[0];
}

/* The kernel that a service offers: where the assembler spoils one schedule it is the next (workers/build.c). NULL: none is constructed. */
static kiln_kernel *offered(kiln_arena *a, const kiln_request *r, const kn_hw *hw, const char *arch, const char *what, tally *n, const char **why)
{
    kiln_candidates *c = NULL;
    kiln_diag d = {0};
    kiln_kernel *first = NULL;
    if (kiln_construct(a, r->program, hw, "default", NEXT, &c, &d)) {
        printf("%s: %s\n", what, d.message);
        return NULL;
    }
    for (int i = 0; i < c->n && (!i || tools.nvrtc[0]); i++) {
        kiln_kernel *k = kernel_of(a, r, hw, c->c[i].trace, why);
        if (k && assembles(k, arch, what, n)) {
            n->assembled++;
            n->later += i > 0;
            return k;
        }
        first = i ? first : k;
    }
    return first;
}

static bool emulates(const kiln_request *r, const kiln_kernel *k, const char *what, worker_traffic *t)
{
    worker_verdict v;
    worker_error e;
    bool ran = (t ? worker_emulate_traffic : worker_emulate)(&tools, r->program, k, t ? 1000 : 150, &v, &e);
    if (!ran || !v.ok) printf("%s: emulation: %s\n", what, ran ? v.detail : e.message);
    if (t) *t = v.traffic;
    return ran && v.ok;
}

/* The request with every extent of a shape made small, the same for the same: of images the first is a batch, windows stay. */
static void reduce(const char *full, char *out, size_t cap)
{
    size_t n = 0;
    int depth = -1, place = 0;
    for (const char *p = full; *p && n + 16 < cap;) {
        bool group = !strncmp(p, "\"group\":", 8), shape = !strncmp(p, "\"shape\":[", 9);
        if (group || shape) {
            size_t m = group ? 8 : 9;
            memcpy(out + n, p, m);
            n += m, p += m;
            depth = group ? 0 : 1, place = 0;
        } else if (depth >= 0 && isdigit((unsigned char)*p)) {
            long x = strtol(p, (char **)(uintptr_t)&p, 10), most = strstr(full, "kernel_shape") || strstr(full, "pads") ? 23 : 67;
            bool batch = depth == 1 && place == 0 && strstr(full, "\"name\":\"x\"") && out[n - 1] == '[' && !strstr(full, "Relu") && x > 2 &&
                         strstr(out, "\"shape\":[") == out + n - 9;
            n += (size_t)snprintf(out + n, cap - n, "%ld", batch ? 2 : x <= 16 ? x : x > 1 << 22 ? 5000 + x % 1000 : 17 + x % most);
            place++;
            if (depth == 0) depth = -1;
        } else {
            if (*p == ']') depth = -1;
            out[n++] = *p++;
        }
        out[n] = 0;
    }
}

static kiln_request *read_json(kiln_arena *a, const char *json)
{
    kiln_request *r = NULL;
    kiln_diag d = {0};
    if (kiln_request_json(a, (kiln_bytes){json, strlen(json)}, &r, &d)) printf("%s: %s\n", json, d.message);
    return r;
}

static bool one_operator(const char *id, const char *json, int device, tally *n)
{
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    char small[1200], what[1300];
    const char *why = "";
    kn_hw *hw = ops_device(a, devices[device].id);
    kiln_request *full = read_json(a, json), *r;
    reduce(json, small, sizeof small);
    r = read_json(a, small);
    n->tried++;
    snprintf(what, sizeof what, "%s on %s", id, devices[device].id);
    kiln_kernel *k = full && r ? offered(a, full, hw, devices[device].arch, what, n, &why) : NULL, *reduced = NULL;
    if (k) {
        n->constructed++;
        reduced = kernel_of(a, r, hw, k->trace, &why);
        n->own += !reduced;
        if (!reduced) reduced = kernel_of(a, r, hw, (kiln_bytes){NULL, 0}, &why);
        snprintf(what, sizeof what, "%s on %s, reduced to %.1000s", id, devices[device].id, small);
        if (reduced) n->emulated += emulates(r, reduced, what, NULL);
    }
    if (!k || !reduced) printf("%s: %s\n", what, why);
    kiln_arena_close(a);
    return true;
}

static void operators(const char *path, int device, tally *n)
{
    ops_table t = {0};
    char json[1100];
    int row = 0;
    if (!ops_open(&t, path)) return;
    while (ops_next(&t)) {
        if (strcmp(ops_at(&t, "suite"), "osdi22-119") || !ops_request(&t, json, sizeof json)) continue;
        if (brief && row++ % 40 != 7) continue;
        one_operator(ops_at(&t, "id"), json, device, n);
    }
    fclose(t.f);
}

static void with_dtype(const char *text, const char *dtype, char *out, size_t cap)
{
    size_t n = 0;
    for (; *text && n + 8 < cap; text++) {
        if (*text == '@') n += (size_t)snprintf(out + n, cap - n, "%s", dtype);
        else out[n++] = *text;
    }
    out[n] = 0;
}

static int64_t sectors_of(const kiln_program *p)
{
    int64_t bytes = 0;
    for (int i = 0; i < p->ninputs + p->noutputs; i++) {
        int64_t n = kn_dtype_bytes(p->tensors[i].dtype);
        for (int d = 0; d < p->tensors[i].rank; d++) n *= p->tensors[i].shape[d];
        bytes += n;
    }
    return (bytes + 31) / 32;
}

static bool one_family(const family *f, const char *dtype, int device, tally *n)
{
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    char expr[400], inputs[200], what[700];
    const char *why = "";
    kiln_request *r = NULL;
    kiln_diag d = {0};
    worker_traffic t = {0};
    with_dtype(f->expr, dtype, expr, sizeof expr);
    with_dtype(f->inputs, dtype, inputs, sizeof inputs);
    snprintf(what, sizeof what, "%s, %s on %s: %s (%s)", f->name, dtype, devices[device].id, expr, inputs);
    n->tried++;
    bool ok = kiln_request_text(a, (kiln_bytes){expr, strlen(expr)}, (kiln_bytes){inputs, strlen(inputs)}, NULL, &r, &d) == KILN_OK;
    kiln_kernel *k = ok ? offered(a, r, ops_device(a, devices[device].id), devices[device].arch, what, n, &why) : NULL;
    if (!k) printf("%s: %s%s\n", what, d.message, why);
    n->constructed += k != NULL;
    ok = k && emulates(r, k, what, f->least ? &t : NULL);
    int64_t touched = t.load_sectors + t.store_sectors, least = sectors_of(r ? r->program : k->launches[0].program);
    if (ok && f->least && touched * 100 > least * f->least) {
        printf("%s: %lld sectors, its tensors have %lld\n%s\n", what, (long long)touched, (long long)least, k->trace.p);
        ok = false;
    }
    n->emulated += ok;
    kiln_arena_close(a);
    return ok;
}

static void grid(int device, tally *n)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        if ((brief && !families[i].often) || strncmp(families[i].name, chosen, strlen(chosen))) continue;
        for (const char *p = families[i].dtypes; *p; p += strspn(p, " ")) {
            char dtype[8];
            snprintf(dtype, sizeof dtype, "%.*s", (int)strcspn(p, " "), p);
            one_family(&families[i], dtype, device, n);
            p += strcspn(p, " ");
            if (brief) break;
        }
    }
}

/* The requests of a file, as they are. */
static void requests(const char *path, int device, tally *n)
{
    FILE *f = fopen(path, "r");
    char line[4096];
    if (!f) printf("%s: cannot be read\n", path);
    n->tried += !f;
    while (f && fgets(line, sizeof line, f)) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        char what[4200];
        const char *why = "it cannot be read";
        line[strcspn(line, "\n")] = 0;
        snprintf(what, sizeof what, "%s on %s", line, devices[device].id);
        kiln_request *r = read_json(a, line);
        kiln_kernel *k = r ? offered(a, r, ops_device(a, devices[device].id), devices[device].arch, what, n, &why) : NULL;
        if (!k) printf("%s: %s\n", what, why);
        n->tried++;
        n->constructed += k != NULL;
        if (k) n->emulated += emulates(r, k, what, NULL);
        kiln_arena_close(a);
    }
    if (f) fclose(f);
}

static bool report(const char *what, const char *device, const tally *n)
{
    printf("%s, %s: %d tried, %d constructed, %d assembled without spills, %d right in emulation", what, device, n->tried, n->constructed,
           n->assembled, n->emulated);
    if (n->own) printf(" (%d by a schedule of the reduced shape's own)", n->own);
    if (n->later) printf(" (%d by a later schedule than the first)", n->later);
    printf("\n");
    fflush(stdout);
    return n->constructed == n->tried && n->emulated == n->tried && (!tools.nvrtc[0] || n->assembled == n->tried);
}

/* Devices that no assembler here knows: how many operators give PTX. */
static void ptx(const char *path, int device)
{
    ops_table t = {0};
    char json[1100];
    int tried = 0, given = 0, row = 0;
    if (!ops_open(&t, path)) return;
    while (ops_next(&t)) {
        if (strcmp(ops_at(&t, "suite"), "osdi22-119") || !ops_request(&t, json, sizeof json) || (brief && row++ % 40 != 7)) continue;
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        const char *why = "";
        worker_blob b = {0};
        worker_error e = {0};
        kiln_request *r = read_json(a, json);
        kn_hw *hw = ops_device(a, older[device].id);
        kiln_kernel *k = r && hw ? kernel_of(a, r, hw, (kiln_bytes){NULL, 0}, &why) : NULL;
        bool ok = k && worker_compile_ptx(&tools, k->source, older[device].arch, 60000, &b, &e);
        if (!ok) printf("%s on %s: %s%s\n", ops_at(&t, "id"), older[device].id, why, e.message);
        tried++;
        given += ok;
        free(b.p);
        kiln_arena_close(a);
    }
    fclose(t.f);
    printf("operators, %s: %d tried, %d give PTX\n", older[device].id, tried, given);
}

/* Its description can be read; else that is said. */
static bool described(const char *id)
{
    kiln_arena *a = kiln_arena_open(&(kiln_host){.mem = mem});
    bool ok = a && ops_device(a, id);
    kiln_arena_close(a);
    return ok;
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "child")) return child_main(argc, argv);
    bool ok = true;
    const char *path = "tests/data/roller_ops.csv", *only = "", *own = NULL;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "-s")) brief = true;
        else if (!strcmp(argv[i], "-d") && i + 1 < argc) only = argv[++i];
        else if (!strcmp(argv[i], "-f") && i + 1 < argc) chosen = argv[++i];
        else if (!strcmp(argv[i], "-r") && i + 1 < argc) own = argv[++i];
        else path = argv[i];
    }
    workers_find_tools("build", &tools);
    snprintf(tools.worker, sizeof tools.worker, "%s", argv[0]);
    if (!tools.nvrtc[0]) printf("no NVRTC here: nothing is assembled\n");
    for (int d = 0; d < DEVICES; d++) {
        tally ops = {0}, grids = {0};
        if ((brief && d != DEVICES - 1) || (*only && strcmp(only, devices[d].id))) continue;
        if (!described(devices[d].id)) return 2;
        if (own) {
            requests(own, d, &ops);
            ok = report("requests", devices[d].id, &ops) && ok;
            continue;
        }
        if (devices[d].operators && !*chosen) {
            operators(path, d, &ops);
            ok = report("operators", devices[d].id, &ops) && ok;
        }
        grid(d, &grids);
        ok = report("families", devices[d].id, &grids) && ok;
    }
    for (int d = 0; d < 2 && tools.clang[0] && !brief && !*chosen && !own; d++)
        if (!*only || !strcmp(only, older[d].id)) ptx(path, d);
    printf("gpu-sweep: %s\n", ok ? "holds" : "does not hold");
    return !ok;
}
