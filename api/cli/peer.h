/* Another runtime, in a child process, on the same model and inputs, for `kiln bench DIR --against NAME`. */
#ifndef KILN_CLI_PEER_H
#define KILN_CLI_PEER_H
#include "api/cli/model.h"

struct peer {
    int pid; /* of the child; 0: none */
    int to, from;
    char version[64];
    double difference; /* of its outputs from those of r, by the largest magnitude of an output (at least 1) */
};
/* Starts it on `threads` threads; r has run, its outputs are compared with. An exit status after a message that says what is missing. */
int peer_open(struct cli *c, const struct model_run *r, const char *model, struct peer *p);
int peer_time(struct peer *p, double *us); /* one run, after one that is not timed */
void peer_close(struct peer *p);
/* The file that the folder was made of, with the digest it had: FILE.onnx behind DIR, else where it was. NULL after a message; free. */
char *peer_model(struct cli *c, int *status);
#endif
