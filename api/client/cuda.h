/* A model on a GPU, behind libkiln-client: the driver found at run time, the model's launcher, arrays copied there and back.
 * Internal to api/client. */
#ifndef CLIENT_CUDA_H
#define CLIENT_CUDA_H
#include "api/client/kiln_client.h"
#include <stdbool.h>
#include <stddef.h>

typedef struct cuda_model cuda_model;
/* What a folder has, read and checked. images: cubins or PTX, NUL-terminated. */
typedef struct cuda_parts {
    void *so;             /* entry.so, loaded */
    const char *entry, *arch;
    const void *const *images, *const *weights; /* weights: one each, NULL where the folder has no bytes of it */
    int nin, nout;
    const kiln_client_tensor *in, *out;
} cuda_parts;
/* In the context that is current, else in that of device 0. NULL: *e; a machine without a driver or with another GPU is said so. */
cuda_model *cuda_open(const cuda_parts *p, kiln_client_error *e);
void cuda_close(cuda_model *m); /* NULL is fine */
/* Arrays of this machine's memory; waits. us: NULL, or gets the microseconds of each of n steps. 0: done. */
int cuda_run(cuda_model *m, const void *const *inputs, void *const *outputs, double *us, int n, kiln_client_error *e);
/* Device pointers; does not wait. */
int cuda_launch(cuda_model *m, const void *const *inputs, void *const *outputs, void *stream, kiln_client_error *e);
#endif
