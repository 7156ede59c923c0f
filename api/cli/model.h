/* A compiled model with arrays to run it on, for `kiln run DIR` and `kiln bench DIR`. */
#ifndef KILN_CLI_MODEL_H
#define KILN_CLI_MODEL_H
#include "api/cli/cli.h"
#include "api/client/kiln_client.h"

struct model_run {
    kiln_model *model;
    const void **inputs;
    void **outputs, **owned;
    struct kiln_pool *pool;
};
int model_open(struct cli *c, struct model_run *r); /* of c->args[0]; inputs from --input, else random; an exit status after a message */
void model_close(struct model_run *r);
double model_now_us(void);
#endif
