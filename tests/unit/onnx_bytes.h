/* Writes Protobuf for tests: enough of it for small ONNX models, and for wrong ones. */
#ifndef TESTS_ONNX_BYTES_H
#define TESTS_ONNX_BYTES_H
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct bytes {
    uint8_t p[1 << 16];
    size_t n;
} bytes;

static inline void put_varint(bytes *b, uint64_t x)
{
    for (; x > 127; x >>= 7) b->p[b->n++] = (uint8_t)(x | 128);
    b->p[b->n++] = (uint8_t)x;
}

static inline void put_int(bytes *b, int field, int64_t x)
{
    put_varint(b, (uint64_t)field << 3);
    put_varint(b, (uint64_t)x);
}

static inline void put_bytes(bytes *b, int field, const void *p, size_t n)
{
    put_varint(b, (uint64_t)field << 3 | 2);
    put_varint(b, n);
    memcpy(b->p + b->n, p, n);
    b->n += n;
}

static inline void put_text(bytes *b, int field, const char *s) { put_bytes(b, field, s, strlen(s)); }
static inline void put_message(bytes *b, int field, const bytes *m) { put_bytes(b, field, m->p, m->n); }

/* ---- ONNX's messages ---- */

/* ValueInfoProto; an extent of -1 is the dimension "N". */
static inline void put_value(bytes *b, int field, const char *name, int dtype, int rank, const int64_t *dims)
{
    static bytes value, type, tensor, shape, dim;
    value.n = type.n = tensor.n = shape.n = 0;
    for (int i = 0; i < rank; i++) {
        dim.n = 0;
        if (dims[i] < 0)
            put_text(&dim, 2, "N");
        else
            put_int(&dim, 1, dims[i]);
        put_message(&shape, 1, &dim);
    }
    put_int(&tensor, 1, dtype);
    put_message(&tensor, 2, &shape);
    put_message(&type, 1, &tensor);
    put_text(&value, 1, name);
    put_message(&value, 2, &type);
    put_message(b, field, &value);
}

/* TensorProto with raw data. */
static inline void put_tensor(bytes *b, int field, const char *name, int dtype, int rank, const int64_t *dims, const void *raw, size_t n)
{
    static bytes tensor;
    tensor.n = 0;
    for (int i = 0; i < rank; i++) put_int(&tensor, 1, dims[i]);
    put_int(&tensor, 2, dtype);
    put_text(&tensor, 8, name);
    put_bytes(&tensor, 9, raw, n);
    put_message(b, field, &tensor);
}

static inline void put_ints_attr(bytes *b, const char *name, int n, const int64_t *list)
{
    static bytes attr;
    attr.n = 0;
    put_text(&attr, 1, name);
    for (int i = 0; i < n; i++) put_int(&attr, 8, list[i]);
    put_int(&attr, 20, 7);
    put_message(b, 5, &attr);
}

static inline void put_int_attr(bytes *b, const char *name, int64_t x)
{
    static bytes attr;
    attr.n = 0;
    put_text(&attr, 1, name);
    put_int(&attr, 3, x);
    put_int(&attr, 20, 2);
    put_message(b, 5, &attr);
}

/* NodeProto without attributes: names divided by spaces. */
static inline void put_node_head(bytes *node, const char *op, const char *inputs, const char *outputs)
{
    node->n = 0;
    for (int k = 0; k < 2; k++)
        for (const char *p = k ? outputs : inputs; *p;) {
            size_t n = strcspn(p, " ");
            put_bytes(node, k + 1, p, n);
            p += n + (p[n] == ' ');
        }
    put_text(node, 3, "n");
    put_text(node, 4, op);
}

static inline void put_node(bytes *graph, const char *op, const char *inputs, const char *outputs)
{
    static bytes node;
    put_node_head(&node, op, inputs, outputs);
    put_message(graph, 1, &node);
}

/* ModelProto around a graph. */
static inline void put_model(bytes *model, const bytes *graph, int opset)
{
    static bytes version;
    version.n = 0;
    model->n = 0;
    put_text(&version, 1, "");
    put_int(&version, 2, opset);
    put_int(model, 1, 8);
    put_message(model, 7, graph);
    put_message(model, 8, &version);
}
#endif
