/* Canonical bytes of a device and the small accessors. */
#include "hw/fields.h"
#include <stdio.h>
#include <string.h>

static void put_texts(kn_buf *b, int n, const char *const *list)
{
    for (int i = 0; i < n; i++) kn_putf(b, "%s%s", i ? "," : "", list[i]);
}

static void put_scope(kn_buf *b, const kiln_hw *hw, enum kn_hw_scope scope, const char *base);

static void put_value(kn_buf *b, const kiln_hw *hw, const kn_hw_field *f, const char *base)
{
    const char *from = base + f->offset;
    switch (f->type) {
    case KN_HW_T_ID: case KN_HW_T_WORD: case KN_HW_T_TEXT: {
        const char *s = *(const char *const *)(const void *)from;
        kn_put(b, s ? s : "");
        break;
    }
    case KN_HW_T_KIND: kn_put(b, hw->gpu ? "gpu" : "cpu"); break;
    case KN_HW_T_INT: kn_putf(b, "%d", *(const int *)(const void *)from); break;
    case KN_HW_T_LONG: kn_putf(b, "%lld", (long long)*(const int64_t *)(const void *)from); break;
    case KN_HW_T_NUM: kn_put_double(b, *(const double *)(const void *)from); break;
    case KN_HW_T_LONG2:
        for (int i = 0; i < 2; i++) kn_putf(b, "%lld,", (long long)((const int64_t *)(const void *)from)[i]);
        break;
    case KN_HW_T_NUM2:
        for (int i = 0; i < 2; i++) {
            kn_put_double(b, ((const double *)(const void *)from)[i]);
            kn_put(b, ",");
        }
        break;
    case KN_HW_T_FEATURES: put_texts(b, hw->nfeatures, hw->features); break;
    case KN_HW_T_FLAGS: put_texts(b, hw->nflags, hw->flags); break;
    case KN_HW_T_PEAKS:
        for (int t = 0; t < KN_DTYPE_COUNT; t++) { /* in dtype order, whatever the document's */
            for (int i = 0; i < hw->npeaks; i++) {
                if (hw->peaks[i].dtype != (enum kn_dtype)t) continue;
                kn_putf(b, "%s:", kn_dtype_text((enum kn_dtype)t));
                kn_put_double(b, hw->peaks[i].gflops);
                kn_put(b, ",");
            }
        }
        break;
    case KN_HW_T_LEVELS:
        for (int i = 0; i < hw->nlevels; i++) put_scope(b, hw, KN_HW_LEVEL, (const char *)&hw->levels[i]);
        break;
    case KN_HW_T_INTRINS:
        for (int i = 0; i < hw->nintrins; i++) put_scope(b, hw, KN_HW_INTRIN, (const char *)&hw->intrins[i]);
        break;
    case KN_HW_T_COSTS: put_scope(b, hw, KN_HW_COSTS, (const char *)hw); break;
    case KN_HW_T_ROLLER:
        if (hw->roller.present) put_scope(b, hw, KN_HW_ROLLER, (const char *)hw);
        break;
    }
}

/* One "name=value" line a member in table order: texts cannot hold a newline, so the lines cannot be confused. */
static void put_scope(kn_buf *b, const kiln_hw *hw, enum kn_hw_scope scope, const char *base)
{
    const kn_hw_field *rows;
    int n = kn_hw_fields(&rows);
    kn_put(b, "{\n");
    for (int i = 0; i < n; i++) {
        if (rows[i].scope != scope || !rows[i].code) continue;
        kn_putf(b, "%s=", rows[i].name);
        put_value(b, hw, &rows[i], base);
        kn_put(b, "\n");
    }
    kn_put(b, "}\n");
}

kiln_status kn_hw_canon(kiln_arena *a, kiln_hw *hw, kiln_diag *d)
{
    kn_buf b;
    kn_buf_init(&b, a);
    put_scope(&b, hw, KN_HW_TOP, (const char *)hw);
    hw->canon = kn_buf_take(&b);
    return hw->canon.p ? KILN_OK : kn_fail(d, KILN_MEMORY, "out of memory");
}

bool kn_hw_few_registers(const kn_hw *hw)
{
    enum { FEW = 16 };
    return !hw->gpu && hw->vector_registers <= FEW;
}

int64_t kn_hw_way_bytes(const kn_hw_level *l)
{
    int64_t way = l->capacity_bytes / l->ways;
    return way > 0 ? way & -way : 1;
}

int64_t kn_hw_sets_apart(const kn_hw_level *l, int64_t step)
{
    int64_t apart = kn_hw_way_bytes(l);
    while (apart > l->transaction_bytes && step % apart) apart /= 2;
    return apart;
}

int64_t kn_hw_lines_held(const kn_hw_level *l, int64_t step) { return l->capacity_bytes / kn_hw_sets_apart(l, step); }
bool kn_hw_in_one_set(const kn_hw_level *l, int64_t step) { return l && step % kn_hw_way_bytes(l) == 0; }

bool kn_hw_past_caches(const kn_hw *hw, double bytes) { return hw->streaming_store_bytes && bytes > (double)hw->streaming_store_bytes; }

/* They wait for memory line by line: what fits the caches nearly comes sooner through them (4150x512, 1062x2000 and seven more of 17 to 23 MB: 1.17
 * to 1.6 times as fast, where runs of as much are 1.3 to 2.4 times as fast past them). */
bool kn_hw_squares_past_caches(const kn_hw *hw, double bytes) { return kn_hw_past_caches(hw, bytes / 1.5); }

double kn_hw_vectors(const kn_hw *hw, int64_t n, int64_t lanes, int64_t bytes)
{
    int64_t over = n % lanes;
    bool half = hw->halves_vectors && lanes * bytes == hw->vector_bytes && over && over <= lanes / 2;
    return (double)((n + lanes - 1) / lanes) - (half ? 0.5 : 0);
}

const kn_hw_level *kn_hw_level_named(const kn_hw *hw, const char *name)
{
    for (int i = 0; i < hw->nlevels; i++) if (!strcmp(hw->levels[i].name, name)) return &hw->levels[i];
    return NULL;
}

double kn_hw_peak_gflops(const kn_hw *hw, enum kn_dtype t)
{
    double f32 = 0;
    for (int i = 0; i < hw->npeaks; i++) {
        if (hw->peaks[i].dtype == t) return hw->peaks[i].gflops;
        if (hw->peaks[i].dtype == KN_F32) f32 = hw->peaks[i].gflops;
    }
    int bytes = kn_dtype_bytes(t);
    return bytes > 4 ? f32 * 4 / bytes : f32;
}

const char *kiln_hw_id(const kiln_hw *hw) { return hw->id; }
const char *kiln_hw_kind(const kiln_hw *hw) { return hw->gpu ? "gpu" : "cpu"; }
const char *kiln_hw_language(const kiln_hw *hw) { return hw->language; }
const char *kiln_hw_arch(const kiln_hw *hw) { return hw->arch; }

bool kn_hw_multiplies(const kn_hw *hw, enum kn_dtype t)
{
    char is[16];
    snprintf(is, sizeof is, "=%s", kn_dtype_text(t));
    for (int i = 0; i < hw->nintrins; i++)
        if (strstr(hw->intrins[i].dtypes, is)) return true;
    return false;
}

bool kiln_hw_multiplies_bytes(const kiln_hw *hw) { return kn_hw_multiplies(hw, KN_I8) || kn_hw_multiplies(hw, KN_U8); }

int kiln_hw_features(const kiln_hw *hw, const char *const **names)
{
    *names = hw->features;
    return hw->nfeatures;
}

int kiln_hw_flags(const kiln_hw *hw, const char *const **flags)
{
    *flags = hw->flags;
    return hw->nflags;
}
