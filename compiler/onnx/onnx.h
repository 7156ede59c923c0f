/* ONNX files as raw graphs (graph/graph.h), read in place: names and weights point into the file. */
#ifndef KN_ONNX_H
#define KN_ONNX_H
#include "graph/build.h"

/* The graph as it stands in the file, nodes in an order in which they can be run. The file comes from a client: every length, count, depth
 * and name in it is checked, and refused at a JSON pointer in ONNX's field names ("/graph/node/3/attribute/0"). */
kiln_status kn_onnx_read(kiln_arena *a, kiln_bytes model, const kiln_graph_options *o, kn_graph **out, kiln_diag *d);
/* A TensorProto by itself, as in the test data of ONNX: a constant. */
kiln_status kn_onnx_tensor(kiln_arena *a, kiln_bytes file, kn_value *out, kiln_diag *d);
#endif
