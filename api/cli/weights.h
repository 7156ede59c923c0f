/* A model's file, and what of it is posted: large weights stay here, by their digests, and go straight into the folder. */
#ifndef CLI_WEIGHTS_H
#define CLI_WEIGHTS_H
#include "api/cli/cli.h"
#include <cjson/cJSON.h>

enum { WEIGHT_FROM = 1 << 20 }; /* bytes of a weight from which it is large */
struct weights_data { void *p; size_t n; char name[1024]; struct weights_data *next; };
struct weights {
    struct weights_data *data;   /* mapped: files of the model's folder in which it keeps weights */
    char *rewritten;             /* the model without their names */
    kiln_onnx_weight *apart;     /* what of them is not posted */
    int napart;
    void *file; /* mapped */
    size_t n;
    kiln_bytes body;             /* to be posted */
    const kiln_onnx_weight *all; /* that it only names */
    int nall;
};
/* An exit status after a message; weights_close either way. */
int weights_open(struct cli *c, const char *path, struct weights *w);
/* apart_posix.c: weights that the body at `model` keeps in files of its folder, also those of graphs inside its nodes; those of `least` bytes and
 * more by their digests. */
int weights_apart(const char *model, size_t least, struct weights *w);
void weights_close(struct weights *w);
/* Behind the weights that came from the service, those that stayed here; offsets into the manifest, the file's digest into files. */
int weights_append(struct cli *c, const struct weights *w, cJSON *manifest, cJSON *files);
#endif
