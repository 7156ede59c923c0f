/* libkiln-client: runs what Kiln compiled, in C. A model is a folder that `kiln compile model.onnx -o DIR` wrote. C11 and C++. */
#ifndef KILN_CLIENT_H
#define KILN_CLIENT_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

enum { KILN_CLIENT_RANK = 8 };
typedef struct kiln_client_error { char message[512]; } kiln_client_error;
typedef struct kiln_client_tensor {
    const char *name, *dtype; /* "f32" */
    int rank;
    int64_t shape[KILN_CLIENT_RANK], bytes;
} kiln_client_tensor;

/* A fork-join pool that kernels run on (docs/abi.md); its layout is the ABI's. NULL: threads cannot be had; everything runs serially then. */
struct kiln_pool;
struct kiln_pool *kiln_pool_open(int threads);
void kiln_pool_close(struct kiln_pool *pool); /* NULL is fine */

/* Reads and checks a folder: every file against its SHA-256 before it is loaded, the CPU against the features of the target. NULL: *error. */
typedef struct kiln_model kiln_model;
kiln_model *kiln_model_open(const char *folder, kiln_client_error *error);
void kiln_model_close(kiln_model *model); /* NULL is fine */
int kiln_model_inputs(const kiln_model *model);
int kiln_model_outputs(const kiln_model *model);
const kiln_client_tensor *kiln_model_input(const kiln_model *model, int i);
const kiln_client_tensor *kiln_model_output(const kiln_model *model, int i);
/* Arrays in the order of the model, contiguous and row-major. 0: done. One call at a time a model; others wait. pool NULL: serial. */
int kiln_model_run(kiln_model *model, const void *const *inputs, void *const *outputs, const struct kiln_pool *pool, kiln_client_error *error);
/* Of a model for a CUDA target kiln_model_open loads kernels, weights and an arena into the context that is current, else into that of device 0, and
 * kiln_model_run copies arrays there and back. This takes device pointers of that context and puts all steps on a stream (NULL: the default one); it
 * allocates nothing and does not wait, so it may be captured into a CUDA graph. Calls for one model are ordered by the caller. */
int kiln_model_launch(kiln_model *model, const void *const *inputs, void *const *outputs, void *stream, kiln_client_error *error);
/* Nodes of a model that was compiled with partial=true and are left to you: how many; what each is ("NonMaxSuppression"), where it stands in the
 * model ("/graph/node/7"). A model that has some cannot be run before it is told whom to call: with the number of the call, pointers to what the
 * node reads and to where it writes, in the order of `calls` in model.json; 0 is right. Calls come on the thread that runs the model. */
typedef int32_t (*kiln_client_caller)(void *user, int32_t call, const void *const *inputs, void *const *outputs);
int kiln_model_calls(const kiln_model *model);
const char *kiln_model_call(const kiln_model *model, int i, const char **node);
void kiln_model_set_caller(kiln_model *model, kiln_client_caller caller, void *user);
/* The same, step by step: us[i] gets the microseconds of step i. */
int kiln_model_steps(const kiln_model *model);
const char *kiln_model_step(const kiln_model *model, int i, double *flops, double *bytes); /* the nodes that the step does */
int kiln_model_profile(kiln_model *model, const void *const *inputs, void *const *outputs, const struct kiln_pool *pool, double *us,
                       kiln_client_error *error);
#ifdef __cplusplus
}
#endif
#endif
