/* Instructions that nobody shipped, and all that are, on operators of any size: the mappings of a random instruction, written as a client's JSON,
 * compute what the reference does, bit for bit. KILN_SEED, KILN_COUNT: another walk, a longer one. */
#include "tests/arena.h"
#include "tests/unit/device.h"
#include "intrin/map.h"
#include "te/ref.h"
#include "te/expr.h"
#include "tests/unit/lprog_eval.c"
#include "lower/lower.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>
#include "tests/unit/integers.h"

static uint64_t state_of_random;
static int rnd(int n)
{
    state_of_random = state_of_random * 6364136223846793005u + 1442695040888963407u;
    return (int)((state_of_random >> 33) % (uint64_t)n);
}

/* What the two factors and the result are. */
typedef struct kinds { const char *a, *b, *d; } kinds;
static const kinds types[] = {
    {"f16", "f16", "f32"}, {"u8", "i8", "i32"}, {"i8", "u8", "i32"}, {"f32", "f32", "f32"}, {"bf16", "bf16", "f32"}, {"f16", "f32", "f32"},
    {"i8", "i8", "i32"}, {"bf16", "f16", "f32"}, {"f64", "f64", "f64"}, {"i16", "i8", "i32"},
};
enum { TYPES = sizeof types / sizeof *types };

/* {h+k}: the sum of sizes n, c, f, h of 1 to 7, k of 1 to 3, s of 1 to 2, and of numbers; A and B: the factors' dtypes; %x%: x in the result's. */
static const char *const operators[] = {
    "in a: A[{h+f},{c+h}], b: B[{c+h},{n+k}]; y[M,N] +=! %a[M,K]% * %b[K,N]%",
    "in a: A[{n},{h},{c}], b: B[{n},{f},{c}]; y[G,M,N] +=! %a[G,M,K]% * %b[G,N,K]%",
    "in a: A[{h},{c}], b: B[{c}]; y[M] +=! %a[M,K]% * %b[K]%",
    "in a: A[{n},{c},{h+k}], b: B[{f},{c},{k}]; y[N,F,P] +=! %a[N,C,P+R]% * %b[F,C,R]% where P in {h}",
    "in a: A[{n},{c},{h},{h}], b: B[{f},{c},{k},{k}]; y[N,F,P,Q] +=! %pad(a,0)[N,C,P*{s}+R-1,Q+S-1]% * %b[F,C,R,S]% where P in {h}, Q in {h}",
    "in a: A[1,{c},{h+k},{h+2}], b: B[{f},{c},{k},2]; y[N,F,P,Q] +=! %a[N,C,P+R,Q+S*2]% * %b[F,C,R,S]% where P in {h}, Q in {h}",
    "in a: A[{n},2,{c},{h+k},{h+1}], b: B[2,{f},{c},{k},2]; y[N,G,F,P,Q] +=! %a[N,G,C,P+R,Q+S]% * %b[G,F,C,R,S]% where P in {h}, Q in {h}",
    "in a: A[{n},{c},{h+k},{h+1}], b: B[{c},{k},2]; y[N,C,P,Q] +=! %a[N,C,P+R,Q+S]% * %b[C,R,S]% where P in {h}, Q in {h}",
    "in a: A[1,{c},3,{h+k},{h+1}], b: B[{f},{c},2,{k},2]; y[N,F,D,P,Q] +=! %a[N,C,D+T,P+R,Q+S]% * %b[F,C,T,R,S]% where D in 2, P in {h}, Q in {h}",
    "in a: A[{n},{c},{h+2},{h+2}], b: B[{c},{f},3,3]; y[N,F,P,Q] +=! %a[N,C,P+R,Q+S]% * %b[C,F,2-R,2-S]% where P in {h}, Q in {h}, R in 3, S in 3",
    "in a: A[{n},{c},{h+1},{h+1}], b: B[{f},{c},2,2,{k}]; y[N,F,P,Q,J] +=! %a[N,C,P+R,Q+S]% * %b[F,C,R,S,J]% where P in {h}, Q in {h}",
    "in a: A[{c},{h}], b: B[{h},{h}]; y[M,N] +=! %a[M,K]% * %b[K,N]%",
    "in a: A[{h},{f}], b: B[{c}]; y[I,J,K] +=! %a[I,J]% * %b[K]%",
    "in a: A[{h+f},{c}]; y[M] +=! %a[M,K]%",
    "in a: A[{n},{c},{h+1},{h+k}]; y[N,C,P,Q] +=! %a[N,C,P+R,Q+S]% where P in {h}, Q in {h}, R in 2, S in {k}",
};
enum { OPERATORS = sizeof operators / sizeof *operators };

static const char *put_cast(const char *p, const char *type, const char *d, char *out, size_t *n, size_t cap)
{
    const char *end = strchr(p + 1, '%');
    int len = (int)(end - p - 1);
    bool same = !strcmp(type, d);
    *n += (size_t)snprintf(out + *n, cap - *n, same ? "%.*s" : "cast(%.*s,%s)", len, p + 1, d);
    return end + 1;
}

static void operator_text(const char *form, const kinds *y, char *text, size_t cap)
{
    static const char letters[] = "ncfhks";
    const int size[] = {1 + rnd(3), 1 + rnd(7), 1 + rnd(7), 1 + rnd(7), 1 + rnd(3), 1 + rnd(2)};
    char out[500];
    int casts = 0, sum;
    size_t n = 0;
    for (const char *p = form; *p;) { /* sizes */
        if (*p != '{') {
            out[n++] = *p++;
            continue;
        }
        for (sum = 0; *p++ != '}';) sum += *p >= '0' && *p <= '9' ? *p - '0' : strchr(letters, *p) && *p ? size[strchr(letters, *p) - letters] : 0;
        n += (size_t)sprintf(out + n, "%d", sum);
    }
    out[n] = 0, n = 0;
    for (const char *p = out; *p;) { /* dtypes */
        if (*p == '%') p = put_cast(p, casts++ ? y->b : y->a, y->d, text, &n, cap);
        else if ((*p == 'A' || *p == 'B') && p[-1] == ' ') n += (size_t)sprintf(text + n, "%s", *p++ == 'A' ? y->a : y->b);
        else text[n++] = *p++;
    }
    text[n] = 0;
}

static void put_index(char *out, const char *axes, int keep)
{
    char order[8] = "";
    size_t n = 0;
    for (const char *p = axes; *p; p++)
        if (keep >> (p - axes) & 1) order[n++] = *p;
    for (size_t i = n; i > 1; i--) { /* dimensions in any order */
        size_t k = (size_t)rnd((int)i);
        char c = order[i - 1];
        order[i - 1] = order[k], order[k] = c;
    }
    for (size_t i = 0; i < n; i++) out += sprintf(out, "%s%c", i ? "," : "", order[i]);
    *out = 0;
}

/* Places of an operand in any scope and order, indices taken apart where a number divides them, one of two turned by the other. */
static int put_memory(char *out, const char *name, const char *index, const int *extent)
{
    static const char *const scopes[] = {"global", "register", "tile", "shared"};
    static const char axes[] = "IJLRT";
    char part[8][24];
    int n = 0;
    for (const char *p = index; *p; p++) {
        if (*p == ',') continue;
        int e = extent[strchr(axes, *p) - axes], by = e % 2 ? 3 : 2;
        char before = p > index ? p[-2] : 0;
        if (before && extent[strchr(axes, before) - axes] == e && rnd(2)) {
            sprintf(part[n++], "(%c+%c)%%%d", *p, before, e);
        } else if (n < 4 && e % by == 0 && rnd(3)) {
            sprintf(part[n++], "%c//%d", *p, by);
            sprintf(part[n++], "%c%%%d", *p, by);
        } else {
            sprintf(part[n++], "%c", *p);
        }
    }
    int at = sprintf(out, "%s[%s] = %s[", name, index, scopes[rnd(4)]);
    for (int i = n; i > 0; i--) {
        int k = rnd(i);
        at += sprintf(out + at, "%s%s", i < n ? "," : "", part[k]);
        memmove(part[k], part[i - 1], sizeof part[k]);
    }
    return at + sprintf(out + at, "]; ");
}

/* An instruction as a client would write it: up to three loops of results and two of sums, operands with any of them, of any order. */
static void instruction_json(int y, char *out, size_t cap)
{
    static const char axes[] = "IJLRT";
    char a[20], b[20], d[20], where[80] = "", text[200], memory[300] = "";
    int extent[5] = {0};
    int spatial = rnd(4), sums = rnd(3), both = rnd(8), used = (1 << spatial) - 1, all = used | ((1 << sums) - 1) << 3;
    bool unary = !rnd(6);
    if (!all) all = used = 1, spatial = 1;
    int ka = rnd(32) & all, kb = (all & ~ka) | (rnd(32) & all & (both ? ~0 : 0)) | (all & 24 & -(rnd(3) > 0));
    if (rnd(3)) ka |= all & 24;
    if (unary) ka = all;
    put_index(a, axes, ka), put_index(b, axes, kb), put_index(d, axes, used);
    for (int i = 0, n = 0; i < 5; i++)
        if (all >> i & 1) n += sprintf(where + n, "%s%c in %d", n ? ", " : "", axes[i], extent[i] = 1 + rnd(rnd(4) ? 5 : 9));
    bool ca = strcmp(types[y].a, types[y].d), cb = strcmp(types[y].b, types[y].d);
    int n = sprintf(text, "d[%s] +=! %sa[%s]%s%s%s", d, ca ? "cast(" : "", a, ca ? "," : "", ca ? types[y].d : "", ca ? ")" : "");
    if (!unary) n += sprintf(text + n, " * %sb[%s]%s%s%s", cb ? "cast(" : "", b, cb ? "," : "", cb ? types[y].d : "", cb ? ")" : "");
    sprintf(text + n, " where %s", where);
    n = 0;
    if (rnd(2)) n += put_memory(memory + n, "d", d, extent);
    if (rnd(2)) n += put_memory(memory + n, "a", a, extent);
    if (rnd(2) && !unary) put_memory(memory + n, "b", b, extent);
    snprintf(out, cap, "{\"name\": \"any\", \"compute\": \"%s\", \"dtypes\": \"d=%s a=%s%s%s\"%s%s%s}", text, types[y].d, types[y].a,
             unary ? "" : " b=", unary ? "" : types[y].b, *memory ? ", \"memory\": \"" : "", memory, *memory ? "\"" : "");
}

/* The device of tests/data/units.json with this instruction alone. */
static kn_hw *device_with(kiln_arena *a, const char *instruction)
{
    static const char member[] = "\"intrinsics\": [";
    char json[16384];
    kiln_diag d = {0};
    kn_hw *hw = NULL;
    FILE *f = fopen("tests/data/units.json", "rb");
    assert_non_null(f);
    size_t n = fread(json, 1, sizeof json - 1, f);
    fclose(f);
    json[n] = 0;
    char *at = strstr(json, member);
    assert_non_null(at);
    at += sizeof member - 1;
    snprintf(at, sizeof json - (size_t)(at - json), "%s]}", instruction);
    if (kiln_hw_parse(a, (kiln_bytes){json, strlen(json)}, &hw, &d)) fail_msg("%s: %s %s", instruction, d.pointer, d.message);
    return hw;
}

typedef struct bench { kn_hw *hw; kn_program *p; double *want[KILN_MAX_TENSORS]; const char *about; } bench;

static void compute(const bench *b, const char *trace)
{
    kiln_arena *a = kiln_arena_open(&(kiln_host){.mem = mem});
    kiln_diag d = {0};
    kn_tree *t;
    kn_lprog *l;
    double *got[KILN_MAX_TENSORS];
    kiln_status s = kn_trace_apply(a, b->p, b->hw, (kiln_bytes){trace, strlen(trace)}, &t, &d);
    if (s && strstr(d.message, "zeros cannot fill it") && kn_is_float(b->hw->intrins[0].parsed->operand[0].dtype)) { /* infinity times zero */
        kiln_arena_close(a);
        return;
    }
    if (s || kn_lower(a, t, b->hw, &l, &d) || kn_lprog_check(l, &d))
        fail_msg("%s\n%s\n%s", d.message, b->about, trace);
    arrays(a, t->program, got);
    const char *bad = lprog_eval(l, got);
    if (bad) fail_msg("%s\n%s\n%s", bad, b->about, trace);
    int y = b->p->ninputs;
    if (memcmp(got[y], b->want[y], sizeof(double) * (size_t)elems(&b->p->tensors[y]))) fail_msg("another result\n%s\n%s", b->about, trace);
    kiln_arena_close(a);
}

/* Runs at most `most` of the mappings, those of any order of the operands; returns how many there are. */
static int run_mappings(kiln_arena *a, const char *instruction, const char *text, int most)
{
    bench b = {.hw = device_with(a, instruction), .about = kn_format(a, "%s\n%s", instruction, text)};
    kiln_diag d = {0};
    kn_maps *list;
    int n = 0;
    if (kn_parse(a, (kiln_bytes){text, strlen(text)}, (kiln_bytes){0}, &b.p, &d)) fail_msg("%s: %s", text, d.message);
    kiln_status s = kn_maps_of(a, b.p, 0, b.hw->intrins[0].parsed, &list, &d);
    if (s == KILN_UNSUPPORTED) return 0;
    if (s) fail_msg("%s: %s", b.about, d.message);
    arrays(a, b.p, b.want);
    assert_int_equal(kn_ref_all(a, b.p, b.want, &d), KILN_OK);
    for (const kn_maps *m = list; m; m = m->turned)
        for (int i = 0; i < m->nmaps; i++) {
            if (kn_map_check(m, &m->maps[i], &d)) continue;
            if (n++ && rnd(m->nmaps) >= most) continue;
            compute(&b, kn_format(a, "map y %s %s", b.hw->intrins[0].name, kn_map_word(a, m, &m->maps[i])));
        }
    return n;
}

static void any_instruction_computes(void **state)
{
    (void)state;
    const char *seed = getenv("KILN_SEED"), *count = getenv("KILN_COUNT");
    int most = count ? atoi(count) : 20, mapped = 0;
    for (int i = 0; i < most; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){.mem = mem});
        char instruction[800], text[500];
        state_of_random = ((uint64_t)(seed ? atoi(seed) : 1) << 32) + (uint64_t)i * 2654435761u;
        rnd(2);
        int y = rnd(TYPES);
        instruction_json(y, instruction, sizeof instruction);
        operator_text(operators[rnd(OPERATORS)], &types[y], text, sizeof text);
        mapped += run_mappings(a, instruction, text, 3) > 0;
        kiln_arena_close(a);
    }
    print_message("%d of %d pairs of an instruction and an operator have mappings\n", mapped, most);
    assert_true(mapped > most / 10);
}

/* A product through the instruction with a few iterations of those loops that may have fewer. Returns how many mappings ran. */
static int with_fewer(kiln_arena *a, const kn_intrin *it)
{
    int64_t extent[KN_INTRIN_LOOPS];
    bool some = false;
    char text[500];
    for (int l = 0; l < it->nloops; l++) {
        extent[l] = it->s->axes[l].extent;
        if (it->fewer[l] && 3 * it->fewer[l] < extent[l]) extent[l] = 3 * it->fewer[l], some = true;
    }
    const kn_intrin *few = some ? kn_intrin_at(a, it, extent) : it;
    assert_non_null(few);
    if (few == it) return 0;
    const kinds y = {kn_dtype_text(it->operand[1].dtype), kn_dtype_text(it->operand[2].dtype), kn_dtype_text(it->operand[0].dtype)};
    operator_text(operators[0], &y, text, sizeof text);
    const char *json = kn_format(a, "{\"name\": \"%s\", \"compute\": \"%s\", \"dtypes\": \"%s\", \"memory\": \"%s\"}", few->name, few->spec->compute,
                                 few->spec->dtypes, few->spec->memory);
    return run_mappings(a, json, text, 1);
}

/* Every instruction of every shipped device, emulated: products, and convolutions where a call is small enough to be interpreted many times; wgmma's
 * large ones with KILN_COUNT. */
static void shipped_instructions_compute(void **state)
{
    (void)state;
    static const char *const ids[] = {"x86-64-avx2", "x86-64-vnni", "x86-64-amx", "nvidia-h200", "arm-neoverse-n1",
                                      "arm-mali-g76", "huawei-ascend910", "amos-units"};
    static const int forms[] = {0, 1, 4, 8, 10};
    enum { TINY = 512, SMALL = 4096 };
    bool full = getenv("KILN_COUNT") != NULL;
    int seen = 0, ran = 0, fewer = 0;
    state_of_random = 99;
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){.mem = mem});
        const kn_hw *hw = device(a, ids[i]);
        for (int k = 0; k < hw->nintrins; k++) {
            const kn_hw_intrin *spec = &hw->intrins[k];
            const kn_intrin *it = spec->parsed;
            if (strstr(spec->compute, "+128")) continue; /* no product of what it reads */
            if (it->noperands != 3 || spec->significand_bits) continue; /* fewer bits than f32 are for products in parts */
            if (it->points > SMALL && !full) {
                fewer += with_fewer(a, it);
                continue;
            }
            const kinds y = {kn_dtype_text(it->operand[1].dtype), kn_dtype_text(it->operand[2].dtype), kn_dtype_text(it->operand[0].dtype)};
            const char *memory = spec->memory ? kn_format(a, ", \"memory\": \"%s\"", spec->memory) : "";
            const char *json = kn_format(a, "{\"name\": \"%s\", \"compute\": \"%s\", \"dtypes\": \"%s\"%s}", spec->name, spec->compute, spec->dtypes,
                                         memory);
            int n = 0;
            for (int f = 0; f < (!n || (full && it->points <= SMALL) ? 5 : it->points > TINY ? 1 : 3); f++) {
                char text[500];
                operator_text(operators[forms[f]], &y, text, sizeof text);
                n += run_mappings(a, json, text, !full || it->points > SMALL ? 1 : it->points > TINY ? 3 : 1000);
            }
            if (!n) print_message("# no mapping of %s %s\n", ids[i], spec->name);
            seen++, ran += n > 0;
            fewer += with_fewer(a, it);
        }
        kiln_arena_close(a);
    }
    assert_true(fewer > 0);
    print_message("%d of %d shipped instructions run through mappings\n", ran, seen);
    assert_int_equal(ran, seen);
}

/* The loop program of a product through an instruction that has its operands so. */
static const char *program_with(kiln_arena *a, const char *memory)
{
    static const char text[] = "in a: u8[8,12], b: i8[12,9]; y[M,N] +=! cast(a[M,K],i32) * cast(b[K,N],i32)", map[] = "map y any I=N;R=K";
    const char *json = kn_format(a, "{\"name\": \"any\", \"compute\": \"d[I] +=! cast(a[R],i32) * cast(b[I,R],i32) where I in 4, R in 4\", "
                                 "\"dtypes\": \"d=i32 a=u8 b=i8\"%s%s%s}", *memory ? ", \"memory\": \"" : "", memory, *memory ? "\"" : "");
    kn_hw *hw = device_with(a, json);
    bench b = {.hw = hw, .about = json};
    kiln_diag d = {0};
    kn_tree *t;
    kn_lprog *l;
    kn_buf out;
    assert_int_equal(kn_parse(a, (kiln_bytes){text, sizeof text - 1}, (kiln_bytes){0}, &b.p, &d), KILN_OK);
    arrays(a, b.p, b.want);
    assert_int_equal(kn_ref_all(a, b.p, b.want, &d), KILN_OK);
    compute(&b, map);
    assert_int_equal(kn_trace_apply(a, b.p, hw, (kiln_bytes){map, sizeof map - 1}, &t, &d), KILN_OK);
    assert_int_equal(kn_lower(a, t, hw, &l, &d), KILN_OK);
    kn_buf_init(&out, a);
    kn_lprog_print(&out, l);
    return kn_buf_take(&out).p;
}

/* What a hwspec says of an operand's place and scope is what is emitted, and right: another layout of b, a copy of a for every call, results in
 * memory between the calls. */
static void memory_is_what_is_emitted(void **state)
{
    (void)state;
    static const char *const memory[] = {"", "b[I,R] = global[R,I]", "b[I,R] = global[I%2,R,I//2]", "a[R] = shared[R]", "d[I] = tile[I]"};
    enum { N = sizeof memory / sizeof *memory };
    kiln_arena *a = kiln_arena_open(&(kiln_host){.mem = mem});
    const char *text[N];
    for (int i = 0; i < N; i++) {
        text[i] = program_with(a, memory[i]);
        for (int k = 0; k < i; k++) assert_string_not_equal(text[i], text[k]);
    }
    assert_string_equal(text[0], program_with(a, "d[I] = register[I]; b[I,R] = global[I*4+R]"));
    kn_hw *cpu = device(a, "x86-64-vnni"), *gpu = device(a, "nvidia-a100");
    kn_hw_intrin dot = *kn_intrin_find(a, cpu, "vpdpbusd")->spec, mma = *kn_intrin_find(a, gpu, "mma_f16")->spec;
    kiln_diag d = {0};
    assert_non_null(kn_native_of(&dot));
    assert_non_null(kn_warp_of(&mma));
    dot.memory = "b[I,R] = global[R,I]";
    mma.memory = "b[R,J] = lane[J*4+R//4,R%4]";
    assert_int_equal(kn_intrin_parse(a, &dot, "", &dot.parsed, &d), KILN_OK);
    assert_int_equal(kn_intrin_parse(a, &mma, "", &mma.parsed, &d), KILN_OK);
    assert_null(kn_native_of(&dot)); /* it is another instruction: emulated */
    assert_null(kn_warp_of(&mma));
    kiln_arena_close(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(memory_is_what_is_emitted),
                                        cmocka_unit_test(shipped_instructions_compute),
                                        cmocka_unit_test(any_instruction_computes) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
