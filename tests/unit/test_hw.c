/* Hwspecs: every shipped one parses, every member made wrong is refused at its pointer, and the JSON schema says what the table says. */
#include "tests/arena.h"
#include "hw/fields.h"
#include <stdarg.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <cjson/cJSON.h>

static const char *const ids[] = {"x86-64-avx2", "x86-64-avx512", "x86-64-bf16", "x86-64-amx", "nvidia-v100", "nvidia-a100",
                                  "nvidia-h100", "nvidia-h200", "nvidia-k80", "amd-mi50", "x86-64-vnni", "arm-neoverse-n1",
                                  "arm-mali-g76", "huawei-ascend910", "amos-units"};
enum { NIDS = sizeof ids / sizeof ids[0] };

static kiln_arena *arena(void) { return kiln_arena_open(&(kiln_host){NULL, mem, NULL}); }

static char *slurp(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("cannot open %s", path);
    char *text = calloc(1, 1 << 17);
    size_t n = fread(text, 1, (1 << 17) - 1, f);
    text[n] = 0;
    fclose(f);
    return text;
}

static cJSON *spec(const char *id)
{
    char path[128];
    snprintf(path, sizeof path, "hwspecs/%s.json", id);
    char *text = slurp(path);
    cJSON *tree = cJSON_Parse(text);
    assert_non_null(tree);
    free(text);
    return tree;
}

/* Parses the (changed) tree; returns the status and fills the diagnostic. */
static kiln_status parse(kiln_arena *a, const cJSON *tree, kiln_hw **hw, kiln_diag *d)
{
    char *text = cJSON_PrintUnformatted(tree);
    *d = (kiln_diag){0};
    kiln_status s = kiln_hw_parse(a, (kiln_bytes){text, strlen(text)}, hw, d);
    free(text);
    return s;
}

static void shipped_specs(void **state)
{
    (void)state;
    for (int i = 0; i < NIDS; i++) {
        kiln_arena *a = arena();
        kiln_hw *hw = NULL;
        kiln_diag d;
        cJSON *tree = spec(ids[i]);
        if (parse(a, tree, &hw, &d)) fail_msg("%s: %s %s (%s)", ids[i], d.pointer, d.message, d.hint);
        assert_string_equal(kiln_hw_id(hw), ids[i]);
        assert_string_equal(hw->levels[0].name, "dram");
        assert_string_equal(hw->levels[hw->nlevels - 1].name, "reg");
        assert_true(hw->canon.n > 100);
        cJSON_Delete(tree);
        kiln_arena_close(a);
    }
}

static void published_constants(void **state)
{
    (void)state;
    struct { const char *id, *arch; double bw0, bw1, peak; int64_t reg, reg_thread, smem, tx0, tx1; int cores, warp, bank; } want[] = {
        {"nvidia-v100", "sm_70", 750, 12080, 12480, 32768, 96, 49152, 32, 128, 80, 32, 4},
        {"nvidia-k80", "sm_37", 191, 2540, 4113, 32768, 96, 49152, 32, 256, 26, 32, 8},
        {"amd-mi50", "gfx906", 900, 8000, 12000, 20000, 70, 34000, 64, 128, 60, 64, 4},
    };
    for (int i = 0; i < 3; i++) {
        kiln_arena *a = arena();
        kiln_hw *hw = NULL;
        kiln_diag d;
        cJSON *tree = spec(want[i].id);
        assert_int_equal(parse(a, tree, &hw, &d), KILN_OK);
        assert_true(hw->roller.present);
        assert_string_equal(kiln_hw_arch(hw), want[i].arch);
        assert_true(hw->roller.bandwidth_gbs[0] == want[i].bw0 && hw->roller.bandwidth_gbs[1] == want[i].bw1);
        assert_true(hw->roller.peak_gflops == want[i].peak);
        assert_int_equal(hw->roller.reg_cap[0], want[i].reg);
        assert_int_equal(hw->roller.reg_cap[1], want[i].reg_thread);
        assert_int_equal(hw->roller.smem_cap, want[i].smem);
        assert_int_equal(hw->roller.transaction_bytes[0], want[i].tx0);
        assert_int_equal(hw->roller.transaction_bytes[1], want[i].tx1);
        assert_int_equal(hw->roller.max_cores, want[i].cores);
        assert_int_equal(hw->roller.warp, want[i].warp);
        assert_int_equal(hw->roller.bank_bytes, want[i].bank);
        cJSON_Delete(tree);
        kiln_arena_close(a);
    }
}

/* The object a field of this scope stands in, and the pointer to it. */
static cJSON *scope_object(cJSON *tree, enum kn_hw_scope scope, const char **at)
{
    *at = "";
    if (scope == KN_HW_TOP) return tree;
    static const char *const names[] = {"", "levels", "intrinsics", "costs", "roller"};
    static const char *const places[] = {"", "/levels/0", "/intrinsics/0", "/costs", "/roller"};
    *at = places[scope];
    cJSON *o = cJSON_GetObjectItemCaseSensitive(tree, names[scope]);
    return scope == KN_HW_ROLLER || scope == KN_HW_COSTS || !o ? o : cJSON_GetArrayItem(o, 0);
}

static void expect_refused(const cJSON *tree, const char *pointer, const char *what)
{
    kiln_arena *a = arena();
    kiln_hw *hw = NULL;
    kiln_diag d;
    kiln_status s = parse(a, tree, &hw, &d);
    if (s != KILN_HWSPEC || strcmp(d.pointer, pointer)) fail_msg("%s: status %d at '%s', wanted '%s': %s", what, s, d.pointer, pointer, d.message);
    if (!d.message[0] || !d.hint[0]) fail_msg("%s: no message or hint at %s", what, pointer);
    kiln_arena_close(a);
}

static void each_member_wrong(void **state)
{
    (void)state;
    const kn_hw_field *f;
    int n = kn_hw_fields(&f), tried = 0;
    for (int s = 0; s < NIDS; s++) {
        for (int i = 0; i < n; i++) {
            for (int how = 0; how < 4; how++) {
                cJSON *tree = spec(ids[s]);
                const char *at;
                cJSON *o = scope_object(tree, f[i].scope, &at);
                char pointer[128];
                snprintf(pointer, sizeof pointer, "%s/%s", at, f[i].name);
                bool number = f[i].type >= KN_HW_T_INT && f[i].type <= KN_HW_T_NUM, have = o && cJSON_GetObjectItemCaseSensitive(o, f[i].name);
                bool use = have && (how == 0 || (how == 3 ? f[i].need == 'b' : number));
                if (use && how == 0) cJSON_ReplaceItemInObjectCaseSensitive(o, f[i].name, cJSON_CreateNull());
                if (use && how == 1) cJSON_ReplaceItemInObjectCaseSensitive(o, f[i].name, cJSON_CreateNumber(f[i].hi * 2 + 1));
                if (use && how == 2) cJSON_ReplaceItemInObjectCaseSensitive(o, f[i].name, cJSON_CreateNumber(f[i].lo - 1));
                if (use && how == 3) cJSON_DeleteItemFromObjectCaseSensitive(o, f[i].name);
                if (use) expect_refused(tree, pointer, ids[s]), tried++;
                cJSON_Delete(tree);
            }
        }
    }
    assert_true(tried > 600);
}

static void places(void **state)
{
    (void)state;
    cJSON *t = spec("x86-64-avx512");
    cJSON_AddNumberToObject(t, "x-note", 1);
    cJSON_AddNumberToObject(t, "cores/~", 1);
    expect_refused(t, "/cores~1~0", "unknown member");
    cJSON_Delete(t);

    t = spec("x86-64-avx512");
    cJSON_AddItemToArray(cJSON_GetObjectItem(t, "flags"), cJSON_CreateString("-fplugin=/tmp/x.so"));
    expect_refused(t, "/flags/8", "a flag that is no machine option");
    cJSON_Delete(t);

    t = spec("nvidia-v100");
    cJSON_ReplaceItemInArray(cJSON_GetObjectItem(cJSON_GetObjectItem(t, "roller"), "reg_cap"), 1, cJSON_CreateNumber(0.5));
    expect_refused(t, "/roller/reg_cap/1", "half a register");
    cJSON_Delete(t);

    t = spec("nvidia-v100");
    cJSON_ReplaceItemInObject(cJSON_GetArrayItem(cJSON_GetObjectItem(t, "levels"), 2), "name", cJSON_CreateString("l2"));
    expect_refused(t, "/levels/2/name", "a level twice");
    cJSON_Delete(t);

    t = spec("nvidia-v100");
    cJSON_DeleteItemFromObject(cJSON_GetObjectItem(t, "peaks"), "f32");
    expect_refused(t, "/peaks/f32", "no f32 peak");
    cJSON_AddNumberToObject(cJSON_GetObjectItem(t, "peaks"), "f31", 1);
    expect_refused(t, "/peaks/f31", "no such dtype");
    cJSON_Delete(t);

    t = spec("nvidia-v100");
    cJSON_DeleteItemFromObject(t, "partitions");
    expect_refused(t, "/partitions", "a gpu without partitions");
    cJSON_Delete(t);
}

static void units_scale_private_rates(void **state)
{
    (void)state;
    kiln_arena *a = arena();
    kiln_hw *two = NULL, *eight = NULL;
    kiln_diag d;
    cJSON *t = spec("x86-64-avx512");
    assert_int_equal(parse(a, t, &two, &d), KILN_OK);
    cJSON_ReplaceItemInObject(t, "units", cJSON_CreateNumber(8));
    assert_int_equal(parse(a, t, &eight, &d), KILN_OK);
    cJSON_Delete(t);
    assert_true(kn_hw_peak_gflops(eight, KN_F32) == 4 * kn_hw_peak_gflops(two, KN_F32));
    assert_true(kn_hw_level_named(eight, "l2")->bandwidth_gbs == 4 * kn_hw_level_named(two, "l2")->bandwidth_gbs);
    assert_true(kn_hw_level_named(eight, "dram")->bandwidth_gbs == kn_hw_level_named(two, "dram")->bandwidth_gbs);
    assert_true(kn_hw_peak_gflops(two, KN_F16) == kn_hw_peak_gflops(two, KN_F32));
    assert_true(kn_hw_peak_gflops(two, KN_I64) == kn_hw_peak_gflops(two, KN_F32) / 2);
    assert_true(two->canon.n != eight->canon.n || memcmp(two->canon.p, eight->canon.p, two->canon.n));
    kiln_arena_close(a);
}

/* Names and order of members of the document, and their texts for people, do not change the canonical bytes. */
static void canonical_bytes(void **state)
{
    (void)state;
    kiln_arena *a = arena();
    kiln_hw *x = NULL, *y = NULL;
    kiln_diag d;
    cJSON *t = spec("nvidia-h200");
    assert_int_equal(parse(a, t, &x, &d), KILN_OK);
    cJSON *units = cJSON_DetachItemFromObject(t, "units");
    cJSON_AddItemToObject(t, "units", units);
    cJSON_ReplaceItemInObject(t, "id", cJSON_CreateString("mine"));
    cJSON_ReplaceItemInObject(t, "name", cJSON_CreateString("another name"));
    assert_int_equal(parse(a, t, &y, &d), KILN_OK);
    assert_int_equal(x->canon.n, y->canon.n);
    assert_memory_equal(x->canon.p, y->canon.p, x->canon.n);
    cJSON_ReplaceItemInObject(t, "arch", cJSON_CreateString("sm_100a"));
    assert_int_equal(parse(a, t, &y, &d), KILN_OK);
    assert_false(x->canon.n == y->canon.n && !memcmp(x->canon.p, y->canon.p, x->canon.n));
    cJSON_Delete(t);
    kiln_arena_close(a);
}

/* From one line of a set to the next: a power of two, whatever the size and the ways are. */
static void ways_of_caches(void **state)
{
    static const struct { int64_t bytes, way; int ways; } known[] = {
        {32768, 4096, 8}, {49152, 4096, 12}, {65536, 16384, 4}, {49152, 2048, 8}, {16, 1, 24}};
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        assert_int_equal(kn_hw_way_bytes(&(kn_hw_level){.capacity_bytes = known[i].bytes, .ways = known[i].ways}), known[i].way);
}

/* Lines a way apart fall into one set, which holds as many as there are ways; others into every second one, every fourth, ..., or into all. */
static void sets_of_caches(void **state)
{
    static const struct { int64_t step, apart, held; } known[] = {
        {4096, 4096, 8}, {8192, 4096, 8}, {12288, 4096, 8}, {2048, 2048, 16}, {6144, 2048, 16}, {64, 64, 512}, {68, 64, 512}, {0, 4096, 8}};
    const kn_hw_level l1 = {.capacity_bytes = 32768, .ways = 8, .transaction_bytes = 64};
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        assert_int_equal(kn_hw_sets_apart(&l1, known[i].step), known[i].apart);
        assert_int_equal(kn_hw_lines_held(&l1, known[i].step), known[i].held);
        assert_int_equal(kn_hw_in_one_set(&l1, known[i].step), known[i].apart == 4096);
    }
    assert_false(kn_hw_in_one_set(NULL, 4096));
}

/* Beyond what a description says; squares from half as much again on; nothing is where it says nothing. */
static void what_is_past_the_caches(void **state)
{
    const kn_hw hw = {.streaming_store_bytes = 1000}, none = {0};
    (void)state;
    assert_false(kn_hw_past_caches(&hw, 1000) || kn_hw_squares_past_caches(&hw, 1500) || kn_hw_past_caches(&none, 1e12));
    assert_true(kn_hw_past_caches(&hw, 1001) && kn_hw_squares_past_caches(&hw, 1501));
}

static void schema_agrees(void **state)
{
    (void)state;
    char *text = slurp("api/schemas/hwspec.json");
    cJSON *schema = cJSON_Parse(text), *defs = cJSON_GetObjectItem(schema, "$defs");
    assert_non_null(defs);
    cJSON *objects[KN_HW_SCOPES] = {schema, cJSON_GetObjectItem(defs, "level"), cJSON_GetObjectItem(defs, "intrinsic"),
                                    cJSON_GetObjectItem(defs, "costs"),
                                    cJSON_GetObjectItem(defs, "roller")};
    const kn_hw_field *f;
    int n = kn_hw_fields(&f), count[KN_HW_SCOPES] = {0}, required[KN_HW_SCOPES] = {0};
    for (int i = 0; i < n; i++) {
        cJSON *p = cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItem(objects[f[i].scope], "properties"), f[i].name);
        if (!p) fail_msg("%s is not in the schema", f[i].name);
        assert_string_equal(cJSON_GetObjectItem(p, "description")->valuestring, f[i].about);
        if (f[i].type >= KN_HW_T_INT && f[i].type <= KN_HW_T_NUM) {
            assert_true(cJSON_GetObjectItem(p, "minimum")->valuedouble == f[i].lo);
            assert_true(cJSON_GetObjectItem(p, "maximum")->valuedouble == f[i].hi);
            assert_string_equal(cJSON_GetObjectItem(p, "type")->valuestring, f[i].type == KN_HW_T_NUM ? "number" : "integer");
        }
        count[f[i].scope]++;
        required[f[i].scope] += f[i].need == 'b';
    }
    for (int s = 0; s < KN_HW_SCOPES; s++) {
        assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(objects[s], "properties")), count[s]);
        assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(objects[s], "required")), required[s]);
    }
    cJSON_Delete(schema);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shipped_specs), cmocka_unit_test(published_constants), cmocka_unit_test(each_member_wrong),
        cmocka_unit_test(places), cmocka_unit_test(units_scale_private_rates), cmocka_unit_test(canonical_bytes),
        cmocka_unit_test(schema_agrees), cmocka_unit_test(ways_of_caches),
        cmocka_unit_test(sets_of_caches), cmocka_unit_test(what_is_past_the_caches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
