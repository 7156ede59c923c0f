/* The operator table as JSON, for GET /v1/operators: what can be asked for is printed from the rows that answer it. */
#include "ops/ops.h"
#include <string.h>

static void put_attr(kn_buf *b, const kn_attr_spec *s)
{
    static const char *const types[] = {"i", "integer", "f", "number", "s", "string", "I", "array", "F", "array"};
    const char *type = "string";
    for (size_t i = 0; i < sizeof types / sizeof *types; i += 2)
        if (types[i][0] == s->kind) type = types[i + 1];
    kn_put_json_string(b, s->name);
    const char *items = s->kind == 'I' ? ",\"items\":{\"type\":\"integer\"}" : s->kind == 'F' ? ",\"items\":{\"type\":\"number\"}" : "";
    kn_putf(b, ":{\"type\":\"%s\"%s,\"default\":", type, items);
    kn_put_json_string(b, s->fallback);
    kn_put(b, ",\"description\":");
    kn_put_json_string(b, s->about);
    kn_put(b, "}");
}

static void put_dtypes(kn_buf *b, const char *classes)
{
    bool first = true;
    kn_put(b, "[");
    for (int t = 0; t < KN_DTYPE_COUNT; t++) {
        if (!strchr(classes, kn_dtype_class((enum kn_dtype)t))) continue;
        kn_putf(b, "%s\"%s\"", first ? "" : ",", kn_dtype_text((enum kn_dtype)t));
        first = false;
    }
    kn_put(b, "]");
}

/* Inputs that have names; more inputs of a variadic operator than these share the last row. */
static int described(const kn_op_spec *op)
{
    int n = 0;
    while (n < op->max_inputs && n < KN_OP_NAMED && op->input_names[n]) n++;
    return n;
}

/* An input that has dtypes of its own says them; all others share one, of the operator's. */
static void put_input(kn_buf *b, const kn_op_spec *op, int i)
{
    kn_putf(b, "%s{\"name\":\"%s\",\"optional\":%s", i ? "," : "", op->input_names[i], i < op->min_inputs ? "false" : "true");
    if (op->input_dtypes[i]) {
        kn_put(b, ",\"dtypes\":");
        put_dtypes(b, op->input_dtypes[i]);
    }
    kn_put(b, "}");
}

static void put_op(kn_buf *b, const kn_op_spec *op)
{
    kn_put(b, "{\"name\":");
    kn_put_json_string(b, op->name);
    kn_put(b, ",\"about\":");
    kn_put_json_string(b, op->about);
    kn_put(b, ",\"inputs\":[");
    for (int i = 0; i < described(op); i++) put_input(b, op, i);
    kn_putf(b, "],\"variadic\":%s,\"dtypes\":", described(op) < op->max_inputs ? "true" : "false");
    put_dtypes(b, op->dtypes);
    kn_put(b, ",\"attrs\":{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{");
    for (const kn_attr_spec *s = op->attrs; s && s->name; s++) {
        if (s != op->attrs) kn_put(b, ",");
        put_attr(b, s);
    }
    kn_put(b, "}}}");
}

kiln_status kiln_operators_json(kiln_arena *a, kiln_bytes *out)
{
    kn_buf b;
    kn_buf_init(&b, a);
    kn_put(&b, "{\"operators\":[");
    for (int i = 0; i < kn_ops_count(); i++) {
        if (i) kn_put(&b, ",");
        put_op(&b, kn_ops_at(i));
    }
    kn_put(&b, "]}");
    kiln_bytes t = kn_buf_take(&b);
    if (!t.p) return KILN_MEMORY;
    *out = t;
    return KILN_OK;
}
