/* One node of a settled graph as a kernel: constructed, generated, compiled by the C compiler, loaded and run. */
#ifndef TESTS_ONNX_KERNEL_H
#define TESTS_ONNX_KERNEL_H
#include "graph/graph.h"

typedef struct kernels {
    const char *dir, *hwspec;
    int compiled, reused;
} kernels; /* dir: where shared objects are kept by entry name */

/* values: elements as doubles, by value of the graph; that of the node's output is filled. False: why. */
bool run_kernel(kernels *k, const kn_graph *g, const kn_node *n, double **values, char *why, size_t cap);
#endif
