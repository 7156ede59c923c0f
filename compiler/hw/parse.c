/* Reads a hwspec: every member is checked against fields.def in the order of the document, and the first wrong one is refused at its JSON
 * pointer with what would be right. */
#include "hw/fields.h"
#include <cjson/cJSON.h>
#include <string.h>

typedef struct reader {
    kiln_arena *a;
    kiln_hw *hw;
    kiln_diag *d;
} reader;

/* JSON pointer of a member under `at` (RFC 6901: '~' and '/' are escaped). */
static const char *under(const reader *r, const char *at, const char *name)
{
    kn_buf b;
    kn_buf_init(&b, r->a);
    kn_put(&b, at);
    kn_put(&b, "/");
    for (const char *s = name ? name : ""; *s && b.n < 180; s++) {
        if (*s == '~') kn_put(&b, "~0");
        else if (*s == '/') kn_put(&b, "~1");
        else kn_putn(&b, s, 1);
    }
    kiln_bytes t = kn_buf_take(&b);
    return t.p ? t.p : "";
}

static kiln_status refuse(const reader *r, const char *at, const kn_hw_field *f, const char *want)
{
    kn_fail_at(r->d, KILN_HWSPEC, at, "member \"%s\" is not valid", f->name);
    kn_hint(r->d, "%s; %s", want, f->about);
    return KILN_HWSPEC;
}

static kiln_status read_number(const reader *r, const kn_hw_field *f, const cJSON *v, const char *at, bool whole, double *out)
{
    double x = v->valuedouble;
    bool ok = cJSON_IsNumber(v) && x >= f->lo && x <= f->hi && (!whole || x == (double)(int64_t)x);
    if (!ok) {
        kn_buf b;
        kn_buf_init(&b, r->a);
        kn_put(&b, whole ? "a whole number " : "a number ");
        kn_put_double(&b, f->lo);
        kn_put(&b, "..");
        kn_put_double(&b, f->hi);
        kiln_bytes t = kn_buf_take(&b);
        return refuse(r, at, f, t.p ? t.p : "a number");
    }
    *out = x;
    return KILN_OK;
}

static bool word_char(char c, bool upper)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.' || (upper && c >= 'A' && c <= 'Z');
}

static bool text_fits(enum kn_hw_type type, const char *s)
{
    if (type == KN_HW_T_TEXT) {
        for (; *s; s++) if ((unsigned char)*s < 0x20 || *s == 0x7f) return false;
        return true;
    }
    if (s[0] == '.' || s[0] == '-') return false;
    for (; *s; s++) if (!word_char(*s, type != KN_HW_T_ID)) return false;
    return true;
}

static kiln_status read_text(const reader *r, const kn_hw_field *f, const cJSON *v, const char *at, const char **out)
{
    size_t n = cJSON_IsString(v) ? strlen(v->valuestring) : 0;
    if (!cJSON_IsString(v) || n < (size_t)f->lo || n > (size_t)f->hi || !text_fits(f->type, v->valuestring)) {
        const char *what = f->type == KN_HW_T_TEXT ? "a text" : f->type == KN_HW_T_ID ? "a text of a-z 0-9 - _ . not led by '.' or '-'"
                                                                                      : "a text of a-z A-Z 0-9 - _ . not led by '.' or '-'";
        const char *want = kn_format(r->a, "%s, %d to %d bytes", what, (int)f->lo, (int)f->hi);
        return refuse(r, at, f, want ? want : what);
    }
    *out = kn_strdup(r->a, v->valuestring);
    return KILN_OK;
}

/* Flags reach a compiler's command line, so only machine options pass: "-m" and word characters or '='; never one that takes a file or a plug-in. */
static bool flag_fits(const char *s)
{
    if (strncmp(s, "-m", 2) != 0 || strlen(s) > 63 || !s[2] || strncmp(s, "-mllvm", 6) == 0) return false;
    for (s += 2; *s; s++) if (!word_char(*s, true) && *s != '=' && *s != '+') return false;
    return true;
}

static bool feature_fits(const char *s)
{
    return *s && strlen(s) <= 31 && text_fits(KN_HW_T_ID, s);
}

static kiln_status read_texts(const reader *r, const kn_hw_field *f, const cJSON *v, const char *at, int *n, const char **out)
{
    bool flags = f->type == KN_HW_T_FLAGS;
    if (!cJSON_IsArray(v) || cJSON_GetArraySize(v) > (int)f->hi) return refuse(r, at, f, "an array of at most 32 texts");
    *n = 0;
    const cJSON *e;
    cJSON_ArrayForEach(e, v) {
        if (!cJSON_IsString(e) || !(flags ? flag_fits(e->valuestring) : feature_fits(e->valuestring))) {
            const char *place = under(r, at, kn_format(r->a, "%d", *n));
            return refuse(r, place, f, flags ? "a machine option \"-m...\" without spaces" : "a name of a-z 0-9 - _ .");
        }
        out[(*n)++] = kn_strdup(r->a, e->valuestring);
    }
    return KILN_OK;
}

static kiln_status read_pair(const reader *r, const kn_hw_field *f, const cJSON *v, const char *at, char *base)
{
    bool whole = f->type == KN_HW_T_LONG2;
    if (!cJSON_IsArray(v) || cJSON_GetArraySize(v) != 2) return refuse(r, at, f, "an array of two numbers");
    for (int i = 0; i < 2; i++) {
        double x = 0;
        const char *place = under(r, at, i ? "1" : "0");
        kiln_status s = read_number(r, f, cJSON_GetArrayItem(v, i), place, whole, &x);
        if (s) return s;
        if (whole) ((int64_t *)(void *)(base + f->offset))[i] = (int64_t)x;
        else ((double *)(void *)(base + f->offset))[i] = x;
    }
    return KILN_OK;
}

static kiln_status read_peaks(const reader *r, const kn_hw_field *f, const cJSON *v, const char *at)
{
    if (!cJSON_IsObject(v)) return refuse(r, at, f, "an object {\"f32\": GFLOP/s, ...}");
    bool f32 = false;
    const cJSON *e;
    r->hw->npeaks = 0;
    cJSON_ArrayForEach(e, v) {
        enum kn_dtype t;
        const char *place = under(r, at, e->string);
        if (!kn_dtype_find(e->string, strlen(e->string), &t) || strcmp(kn_dtype_text(t), e->string) != 0) {
            return refuse(r, place, f, "a dtype as member name: f32 f64 f16 bf16 i64 i32 i16 i8 u8");
        }
        if (!cJSON_IsNumber(e) || !(e->valuedouble > 0) || e->valuedouble > 1e9) return refuse(r, place, f, "a number above 0, at most 1e9");
        r->hw->peaks[r->hw->npeaks++] = (kn_hw_peak){t, e->valuedouble};
        f32 = f32 || t == KN_F32;
    }
    if (!f32) return refuse(r, under(r, at, "f32"), f, "a number");
    return KILN_OK;
}

static kiln_status read_object(reader *r, enum kn_hw_scope scope, char *base, const cJSON *o, const char *at);

static kiln_status read_levels(reader *r, const kn_hw_field *f, const cJSON *v, const char *at)
{
    int n = cJSON_IsArray(v) ? cJSON_GetArraySize(v) : 0;
    if (n < (int)f->lo || n > (int)f->hi) return refuse(r, at, f, "an array of 3 to 8 objects");
    kiln_hw *hw = r->hw;
    for (int i = 0; i < n; i++) {
        const char *place = under(r, at, kn_format(r->a, "%d", i));
        kn_hw_level *l = &hw->levels[i];
        l->shared_by_units = 1, l->ways = 8;
        kiln_status s = read_object(r, KN_HW_LEVEL, (char *)l, cJSON_GetArrayItem(v, i), place);
        if (s) return s;
        hw->nlevels = i; /* the levels before this one, for the look-up */
        bool first = !strcmp(l->name, "dram"), last = !strcmp(l->name, "reg");
        if (first != (i == 0) || last != (i == n - 1) || kn_hw_level_named(hw, l->name)) {
            return refuse(r, under(r, place, "name"), f, "\"dram\" first, \"reg\" last, no name twice");
        }
        if (!last && !(l->bandwidth_gbs > 0)) return refuse(r, under(r, place, "bandwidth_gbs"), f, "a number above 0 (only \"reg\" may have 0)");
    }
    hw->nlevels = n;
    return KILN_OK;
}

static kiln_status read_intrins(reader *r, const kn_hw_field *f, const cJSON *v, const char *at)
{
    if (!cJSON_IsArray(v) || cJSON_GetArraySize(v) > (int)f->hi) return refuse(r, at, f, "an array of at most 32 objects");
    const cJSON *e;
    r->hw->nintrins = 0;
    cJSON_ArrayForEach(e, v) {
        const char *place = under(r, at, kn_format(r->a, "%d", r->hw->nintrins));
        kiln_status s = read_object(r, KN_HW_INTRIN, (char *)&r->hw->intrins[r->hw->nintrins], e, place);
        if (s) return s;
        r->hw->nintrins++;
    }
    return KILN_OK;
}

static kiln_status read_member(reader *r, const kn_hw_field *f, char *base, const cJSON *v, const char *at)
{
    double x = 0;
    kiln_status s = KILN_OK;
    char *to = base + f->offset;
    switch (f->type) {
    case KN_HW_T_ID: case KN_HW_T_WORD: case KN_HW_T_TEXT: return read_text(r, f, v, at, (const char **)(void *)to);
    case KN_HW_T_KIND:
        if (!cJSON_IsString(v) || (strcmp(v->valuestring, "cpu") && strcmp(v->valuestring, "gpu"))) {
            return refuse(r, at, f, "a text");
        }
        r->hw->gpu = !strcmp(v->valuestring, "gpu");
        return KILN_OK;
    case KN_HW_T_INT:
        if (!(s = read_number(r, f, v, at, true, &x))) *(int *)(void *)to = (int)x;
        return s;
    case KN_HW_T_LONG:
        if (!(s = read_number(r, f, v, at, true, &x))) *(int64_t *)(void *)to = (int64_t)x;
        return s;
    case KN_HW_T_NUM:
        if (!(s = read_number(r, f, v, at, false, &x))) *(double *)(void *)to = x;
        return s;
    case KN_HW_T_LONG2: case KN_HW_T_NUM2: return read_pair(r, f, v, at, base);
    case KN_HW_T_FEATURES: return read_texts(r, f, v, at, &r->hw->nfeatures, r->hw->features);
    case KN_HW_T_FLAGS: return read_texts(r, f, v, at, &r->hw->nflags, r->hw->flags);
    case KN_HW_T_PEAKS: return read_peaks(r, f, v, at);
    case KN_HW_T_LEVELS: return read_levels(r, f, v, at);
    case KN_HW_T_INTRINS: return read_intrins(r, f, v, at);
    case KN_HW_T_COSTS: return read_object(r, KN_HW_COSTS, (char *)r->hw, v, at);
    case KN_HW_T_ROLLER: r->hw->roller.present = true; return read_object(r, KN_HW_ROLLER, (char *)r->hw, v, at);
    }
    return KILN_INTERNAL;
}

static const kn_hw_field *field_named(enum kn_hw_scope scope, const char *name)
{
    const kn_hw_field *rows;
    int n = kn_hw_fields(&rows);
    for (int i = 0; i < n; i++) if (rows[i].scope == scope && !strcmp(rows[i].name, name)) return &rows[i];
    return NULL;
}

static bool needed(const kiln_hw *hw, const kn_hw_field *f)
{
    return f->need == 'b' || (f->need == 'g' && hw->gpu) || (f->need == 'c' && !hw->gpu);
}

static kiln_status read_object(reader *r, enum kn_hw_scope scope, char *base, const cJSON *o, const char *at)
{
    if (!cJSON_IsObject(o)) {
        kn_fail_at(r->d, KILN_HWSPEC, at, "%s is not an object", *at ? at : "the hwspec");
        kn_hint(r->d, "an object with the members of hwspecs/README.md");
        return KILN_HWSPEC;
    }
    const cJSON *e;
    cJSON_ArrayForEach(e, o) {
        if (!strncmp(e->string, "x-", 2)) continue;
        const kn_hw_field *f = field_named(scope, e->string);
        const char *place = under(r, at, e->string);
        if (!f) {
            kn_fail_at(r->d, KILN_HWSPEC, place, "no such member");
            kn_hint(r->d, "remove it, or give it a name that begins with \"x-\"");
            return KILN_HWSPEC;
        }
        kiln_status s = read_member(r, f, base, e, place);
        if (s) return s;
        if (kn_arena_dry(r->a)) return kn_fail(r->d, KILN_MEMORY, "out of memory");
    }
    const kn_hw_field *rows;
    int n = kn_hw_fields(&rows);
    for (int i = 0; i < n; i++) {
        if (rows[i].scope != scope || !needed(r->hw, &rows[i]) || cJSON_GetObjectItemCaseSensitive(o, rows[i].name)) continue;
        kn_fail_at(r->d, KILN_HWSPEC, under(r, at, rows[i].name), "member \"%s\" is missing", rows[i].name);
        kn_hint(r->d, "%s", rows[i].about);
        return KILN_HWSPEC;
    }
    return KILN_OK;
}

/* Facts that no single member can be wrong about alone. */
static kiln_status cross_check(const reader *r)
{
    const kiln_hw *hw = r->hw;
    if (!hw->gpu) return KILN_OK;
    const char *at = NULL, *why = "";
    if (!kn_hw_level_named(hw, "shared")) at = "/levels", why = "a gpu needs a level named \"shared\"";
    else if (hw->max_threads_per_block % hw->lanes) at = "/max_threads_per_block", why = "a multiple of lanes";
    else if (hw->max_threads_per_unit < hw->max_threads_per_block) at = "/max_threads_per_unit", why = "at least max_threads_per_block";
    else if (hw->max_shared_per_unit < hw->max_shared_per_block) at = "/max_shared_per_unit", why = "at least max_shared_per_block";
    if (!at) return KILN_OK;
    kn_fail_at(r->d, KILN_HWSPEC, at, "the value does not fit the other members");
    kn_hint(r->d, "%s", why);
    return KILN_HWSPEC;
}

/* Peaks and the bandwidth of private levels grow with the units; a shared level's does not grow, but fewer units draw less from it. */
static void scale_rates(kiln_hw *hw)
{
    if (!hw->rates_for_units) hw->rates_for_units = hw->units;
    double k = (double)hw->units / hw->rates_for_units;
    for (int i = 0; i < hw->npeaks; i++) hw->peaks[i].gflops *= k;
    for (int i = 0; i < hw->nlevels; i++) {
        bool private = hw->levels[i].shared_by_units == 1 && i > 0;
        if (private || k < 1) hw->levels[i].bandwidth_gbs *= k;
    }
}

/* Fitted to 431 mappings of convolutions on the machine that hwspecs/README.md names; its "default ..." in fields.def. */
static const kn_hw_costs usual = {.store_element = 1.5, .copy_element = 1.5, .read_lane = 0.5, .insert_lane = 0.11,
                                    .interleave_element = 0.15, .window_factor = 1.5,
                                    .copy_vector = 2.2, .turn_tile = 20, .keep_result = 12};

kiln_status kn_hw_parse(kiln_arena *a, kiln_bytes json, kiln_hw **out, kiln_diag *d)
{
    kiln_status s = kiln_json_check(json, d);
    if (s) return s;
    kiln_hw *hw = kn_new(a, kiln_hw);
    cJSON *tree = hw ? cJSON_ParseWithLength(json.p, json.n) : NULL;
    if (!tree) return kn_fail(d, KILN_MEMORY, "out of memory");
    hw->costs = usual;
    reader r = {a, hw, d};
    /* kind decides which members are required, wherever in the document it stands */
    const cJSON *kind = cJSON_GetObjectItemCaseSensitive(tree, "kind");
    hw->gpu = cJSON_IsString(kind) && !strcmp(kind->valuestring, "gpu");
    s = read_object(&r, KN_HW_TOP, (char *)hw, tree, "");
    cJSON_Delete(tree);
    if (!s) s = cross_check(&r);
    if (s) return s;
    scale_rates(hw);
    if (!hw->streaming_vector_bytes || hw->streaming_vector_bytes > hw->vector_bytes) hw->streaming_vector_bytes = hw->vector_bytes;
    s = kn_hw_canon(a, hw, d);
    if (!s) *out = hw;
    return s;
}
