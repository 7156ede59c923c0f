/* A plan as a C function that calls the kernels through a table of pointers (docs/abi.md), and as JSON (docs/graphs.md). */
#include "plan/text.h"
#include "artifact/manifest.h"
#include <string.h>

static const char head[] =
    "typedef __INT32_TYPE__ i32;\ntypedef __INT64_TYPE__ i64;\n"
    "#define KN_API __attribute__((visibility(\"default\")))\n"
    "typedef i32 (*kernel_fn)(const void *const *inputs, void *const *outputs, void *workspace, const void *pool);\n"
    "typedef struct call {\n    const kernel_fn *kernels;\n    const char *const *weights, *const *feeds;\n    char *const *results;\n"
    "    char *arena;\n    void *workspace;\n    const void *pool;\n"
    "    i32 (*caller)(void *user, i32 call, const void *const *inputs, void *const *outputs);\n    void *user;\n} call;\n"
    "typedef struct slot {\n    i32 place, index;\n    i64 offset;\n} slot;\n"
    "typedef struct step {\n    i32 kernel, first, nin, nout;\n    i64 bytes;\n} step;\n";

/* One loop over the tables: a model of a thousand steps costs the compiler no more than one of ten. */
static const char tail[] =
    "static char *at(const call *c, const slot *s)\n{\n"
    "    if (s->place == 2) return c->arena + s->offset;\n"
    "    if (s->place == 3) return c->results[s->index] + s->offset;\n"
    "    return (char *)(__UINTPTR_TYPE__)(s->place ? c->weights[s->index] : c->feeds[s->index]) + s->offset;\n}\n"
    "static i32 run(const call *c, i32 from, i32 to)\n{\n"
    "    for (i32 i = from; i < to; i++) {\n"
    "        const step *s = &steps[i];\n"
    "        void *args[MOST];\n"
    "        for (i32 k = 0; k < s->nin + s->nout; k++) args[k] = at(c, &slots[s->first + k]);\n"
    "        if (s->kernel == -1) __builtin_memcpy(args[1], args[0], (__SIZE_TYPE__)s->bytes);\n"
    "        else if (s->kernel < 0) {\n"
    "            if (!c->caller || c->caller(c->user, -2 - s->kernel, (const void *const *)args, args + s->nin)) return i - from + 1;\n        }\n"
    "        else if (c->kernels[s->kernel]((const void *const *)args, args + s->nin, c->workspace, c->pool)) return i - from + 1;\n"
    "    }\n    return 0;\n}\n";

static int inputs_of(const kiln_plan *p, const kiln_step *s)
{
    if (s->kernel < -1) return p->calls[-2 - s->kernel].nin;
    return s->kernel < 0 ? 1 : kiln_program_inputs(p->kernels[s->kernel]);
}

/* Step i of both lists, those of each run first. */
static const kiln_step *step_of(const kiln_plan *p, int i) { return i < p->nsteps ? &p->steps[i] : &p->once[i - p->nsteps]; }

static void put_tables(kn_buf *b, const kiln_plan *p)
{
    int most = 2, first = 0, n = p->nsteps + p->nonce;
    kn_put(b, "static const slot slots[] = {");
    for (int i = 0; i < n; i++) {
        const kiln_step *x = step_of(p, i);
        if (x->nargs > most) most = x->nargs;
        for (int k = 0; k < x->nargs; k++)
            kn_putf(b, "{%d,%d,%lld},", (int)x->args[k].place, x->args[k].index, (long long)x->args[k].offset);
        kn_put(b, "\n");
    }
    kn_put(b, "{0,0,0}};\nstatic const step steps[] = {");
    for (int i = 0; i < n; i++) {
        const kiln_step *s = step_of(p, i);
        int nin = inputs_of(p, s);
        kn_putf(b, "{%d,%d,%d,%d,%lld},\n", s->kernel, first, nin, s->nargs - nin, (long long)s->bytes);
        first += s->nargs;
    }
    kn_putf(b, "{0,0,0,0,0}};\nenum { NSTEPS = %d, MOST = %d };\n", p->nsteps, most);
}

/* The entry's name is of the text itself: plans that differ in anything have two names. */
kiln_status kn_plan_source(kiln_arena *a, const kiln_plan *p, kiln_bytes *out)
{
    kn_buf b;
    uint8_t digest[32];
    char hex[65];
    kn_buf_init(&b, a);
    put_tables(&b, p);
    for (int i = 0; i < p->nkernels; i++) kn_putf(&b, "/* kernel %d: %s */\n", i, p->keys[i].kernel);
    kiln_bytes tables = kn_buf_take(&b);
    if (!tables.p) return KILN_MEMORY;
    kiln_sha256(tables.p, tables.n, digest);
    kiln_hex(digest, 8, hex);
    ((kiln_plan *)(uintptr_t)p)->entry = kn_format(a, "kiln_graph_%s", hex);
    if (!p->entry) return KILN_MEMORY;
    kn_buf_init(&b, a);
    kn_put(&b, head);
    kn_putn(&b, tables.p, tables.n);
    kn_put(&b, tail);
    kn_putf(&b, "KN_API const char kiln_entry[] = \"%s\";\nKN_API i32 kiln_abi_version(void) { return 1; }\n", p->entry);
    kn_putf(&b, "KN_API i64 %s_arena(void) { return %lldll; }\n", p->entry, (long long)p->arena_bytes);
    kn_putf(&b, "KN_API i32 %s(const call *c) { return run(c, 0, NSTEPS); }\n", p->entry);
    if (p->nonce) {
        kn_putf(&b, "KN_API i64 %s_once_arena(void) { return %lldll; }\n", p->entry, (long long)p->once_bytes);
        kn_putf(&b, "KN_API i32 %s_once(const call *c) { return run(c, NSTEPS, NSTEPS + %d); }\n", p->entry, p->nonce);
    }
    *out = kn_buf_take(&b);
    return out->p ? KILN_OK : KILN_MEMORY;
}

static void put_arg(kn_buf *b, const kiln_arg *x)
{
    kn_put(b, "{\"name\":");
    kn_put_json_string(b, x->name);
    kn_putf(b, ",\"dtype\":\"%s\",\"shape\":[", x->dtype);
    for (int k = 0; k < x->rank; k++) kn_putf(b, "%s%lld", k ? "," : "", (long long)x->shape[k]);
    kn_putf(b, "],\"layout\":\"row_major\",\"bytes\":%lld", (long long)x->bytes);
}

/* held, where there is such a list: of these only the caller knows what they are. */
static void put_args(kn_buf *b, const char *name, const kiln_arg *x, const bool *held, int n)
{
    kn_putf(b, ",\"%s\":[", name);
    for (int i = 0; i < n; i++) {
        if (i) kn_put(b, ",");
        put_arg(b, &x[i]);
        kn_put(b, held && held[i] ? ",\"held\":true}" : "}");
    }
    kn_put(b, "]");
}

static void put_call_values(kn_buf *b, const char *name, const kiln_call_value *v, int n)
{
    kn_putf(b, ",\"%s\":[", name);
    for (int i = 0; i < n; i++) {
        if (i) kn_put(b, ",");
        put_arg(b, &v[i].arg);
        kn_put(b, v[i].held ? ",\"held\":true}" : "}");
    }
    kn_put(b, "]");
}

static void put_calls(kn_buf *b, const kiln_plan *p)
{
    kn_put(b, ",\"calls\":[");
    for (int i = 0; i < p->ncalls; i++) {
        const kiln_call *c = &p->calls[i];
        const char *const members[][2] = {{"node", c->place}, {"op", c->op}, {"domain", c->domain}, {"name", c->name}, {"why", c->why}};
        for (size_t k = 0; k < sizeof members / sizeof *members; k++) {
            kn_putf(b, "%s\"%s\":", k ? "," : i ? ",{" : "{", members[k][0]);
            kn_put_json_string(b, members[k][1]);
        }
        put_call_values(b, "inputs", c->values, c->nin);
        put_call_values(b, "outputs", c->values + c->nin, c->nout);
        kn_put(b, "}");
    }
    kn_put(b, "]");
}

/* A weight that is "once" is written by the steps that run once; one with "of" is another one as a kernel's prepack entry makes it, before the first
 * call (docs/abi.md). */
static void put_weights(kn_buf *b, const kiln_plan *p)
{
    kn_put(b, ",\"weights\":[");
    for (int i = 0; i < p->nweights; i++) {
        const kiln_weight *w = &p->weights[i];
        char hex[33];
        if (i) kn_put(b, ",");
        put_arg(b, &w->arg);
        kn_put(b, ",\"constant\":true");
        if (w->once) {
            kn_put(b, ",\"once\":true}");
        } else if (w->of >= 0) {
            kn_putf(b, ",\"of\":%d,\"kernel\":%d,\"input\":%d}", w->of, w->kernel, w->input);
        } else if (w->splat) {
            kiln_hex((const uint8_t *)w->data, w->n < 16 ? w->n : 16, hex);
            kn_putf(b, ",\"splat\":\"%s\"}", hex);
        } else {
            kn_putf(b, ",\"sha256\":\"%s\",\"offset\":%lld}", w->sha256, (long long)w->offset);
        }
    }
    kn_put(b, "]");
}

static void put_steps(kn_buf *b, const kiln_plan *p, const kiln_step *steps, int n)
{
    static const char *const places[] = {"input", "weight", "arena", "output"};
    kn_put(b, ",\"steps\":[");
    for (int i = 0; i < n; i++) {
        const kiln_step *s = &steps[i];
        kn_putf(b, "%s{\"kernel\":%d,\"inputs\":%d,\"args\":[", i ? "," : "", s->kernel, inputs_of(p, s));
        for (int k = 0; k < s->nargs; k++)
            kn_putf(b, "%s[\"%s\",%d,%lld]", k ? "," : "", places[s->args[k].place], s->args[k].index, (long long)s->args[k].offset);
        kn_putf(b, "],\"bytes\":%lld,\"nodes\":", (long long)s->bytes);
        kn_put_json_string(b, s->nodes);
        kn_put(b, ",\"flops\":");
        kn_put_double(b, s->flops);
        kn_put(b, ",\"traffic_bytes\":");
        kn_put_double(b, s->traffic);
        kn_put(b, ",\"fusion_gain_us\":");
        kn_put_double(b, s->gain_us);
        kn_put(b, "}");
    }
    kn_put(b, "]");
}

/* What was built for kernel i, and how it is launched: as its own manifest has it. */
static void put_image(kn_buf *b, const kiln_plan *p, const kn_hw *hw, int i, const kiln_image *x)
{
    kn_putf(b, ",\"entry\":\"%s\",\"image\":{\"kind\":\"%s\",\"sha256\":\"%s\"},\"trace\":", x->kernel->entry, x->kind, x->sha256);
    kn_put_json_string(b, x->kernel->trace.p);
    kn_put(b, ",");
    kn_put_launch_data(b, p->kernels[i], hw, x->kernel);
}

static kiln_status put_kernels(kn_buf *b, kiln_arena *a, const kiln_plan *p, const kn_hw *hw, const kiln_image *images)
{
    kn_put(b, ",\"kernels\":[");
    for (int i = 0; i < p->nkernels; i++) {
        kiln_bytes text;
        if (kiln_program_text(a, p->kernels[i], &text) != KILN_OK) return KILN_MEMORY;
        kn_putf(b, "%s{\"key\":\"%s\",\"workload\":\"%s\",\"program\":", i ? "," : "", p->keys[i].kernel, p->keys[i].workload);
        kn_put_json_string(b, text.p);
        if (images) put_image(b, p, hw, i, &images[i]);
        kn_put(b, "}");
    }
    kn_put(b, "]");
    return KILN_OK;
}

/* Of a GPU, the kernels' temporaries lie behind the values. */
static void put_memory(kn_buf *b, const kiln_plan *p, const kiln_image *images, int64_t bytes)
{
    int64_t values = kn_round_up(bytes, 256);
    if (!images) kn_putf(b, "\"arena\":{\"bytes\":%lld,\"align_bytes\":64}", (long long)bytes);
    else
        kn_putf(b, "\"arena\":{\"bytes\":%lld,\"align_bytes\":256,\"temporaries_offset_bytes\":%lld}",
                (long long)(values + kn_plan_temporaries(p, images)), (long long)values);
}

kiln_status kn_plan_manifest(kiln_arena *a, const kiln_plan *p, const kn_hw *hw, const kiln_image *images, kiln_bytes *out)
{
    kn_buf b;
    kn_buf_init(&b, a);
    kn_putf(&b, "{\"kiln_abi\":1,\"kind\":\"graph\",\"language\":\"%s\",\"entry\":\"%s\",\"target\":{\"id\":", hw->language, p->entry);
    kn_put_json_string(&b, hw->id);
    kn_putf(&b, ",\"kind\":\"%s\",\"arch\":", hw->gpu ? "gpu" : "cpu");
    kn_put_json_string(&b, hw->arch);
    kn_put(&b, ",\"features\":[");
    for (int i = 0; i < hw->nfeatures; i++) {
        if (i) kn_put(&b, ",");
        kn_put_json_string(&b, hw->features[i]);
    }
    kn_put(&b, "]}");
    put_args(&b, "inputs", p->inputs, NULL, p->ninputs);
    put_args(&b, "outputs", p->outputs, p->held, p->noutputs);
    put_weights(&b, p);
    kn_put(&b, ",");
    put_memory(&b, p, images, p->arena_bytes);
    if (put_kernels(&b, a, p, hw, images) != KILN_OK) return KILN_MEMORY;
    if (p->nonce) {
        kn_put(&b, ",\"once\":{");
        put_memory(&b, p, images, p->once_bytes);
        put_steps(&b, p, p->once, p->nonce);
        kn_put(&b, "}");
    }
    put_steps(&b, p, p->steps, p->nsteps);
    if (p->ncalls) put_calls(&b, p);
    kn_putf(&b, ",\"provenance\":{\"compiler\":\"kiln\",\"fingerprint\":\"%s\"}}", kiln_fingerprint());
    *out = kn_buf_take(&b);
    return out->p ? KILN_OK : KILN_MEMORY;
}
