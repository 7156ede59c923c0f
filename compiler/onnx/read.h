/* Inside the reader of ONNX: what its files share. Field numbers are those of onnx.proto (IR version 13). */
#ifndef KN_ONNX_READ_H
#define KN_ONNX_READ_H
#include "graph/settle.h"
#include "onnx/onnx.h"
#include "onnx/wire.h"

typedef struct kn_onnx {
    kiln_arena *a;
    kiln_diag *d;
    const kiln_graph_options *o;
    int opset, nodes, depth;
    bool function; /* in the body of one */
} kn_onnx;

kiln_status kn_onnx_dry(kn_onnx *r);
kiln_status kn_onnx_broken(kn_onnx *r, const char *place);                   /* bytes that are no message */
kiln_status kn_onnx_wrong(kn_onnx *r, const char *place, const char *field); /* a field of the wrong type */
const char *kn_onnx_at(kn_onnx *r, const char *place, const char *field);
const char *kn_onnx_item(kn_onnx *r, const char *place, const char *field, int i);
kn_wire kn_onnx_open(const kn_field *f);
/* A string field as a C string: valid UTF-8 without NUL, at most 4096 bytes. */
kiln_status kn_onnx_text(kn_onnx *r, const kn_field *f, const char *place, const char **out);
kiln_status kn_onnx_read_tensor(kn_onnx *r, const kn_field *f, const char *place, kn_value *out);
kiln_status kn_onnx_read_attribute(kn_onnx *r, const kn_field *f, const char *place, kn_scope *scope, kn_gattr *out);
/* Of a graph's or a function's body: a name that is defined there or read, a node's outputs, then its inputs and attributes. */
kiln_status kn_onnx_define(kn_onnx *r, kn_scope *s, const char *name, const char *place, int *out);
kiln_status kn_onnx_resolve(kn_onnx *r, kn_scope *s, const char *name, const char *place, int *out);
kiln_status kn_onnx_open_node(kn_onnx *r, const kn_field *f, const char *place, kn_scope *s);
kiln_status kn_onnx_close_node(kn_onnx *r, const kn_field *f, kn_scope *s, kn_node *n);
/* OperatorSetIdProto: the version of ai.onnx, 0 for another domain. */
kiln_status kn_onnx_read_opset(kn_onnx *r, const kn_field *f, const char *place, int *version);
kiln_status kn_onnx_read_function(kn_onnx *r, const kn_field *f, const char *place, kn_function *out);
kiln_status kn_onnx_read_graph(kn_onnx *r, const kn_field *f, const char *place, kn_scope *around, kn_graph **out);
#endif
