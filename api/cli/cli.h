/* What the verbs of the command line share: options, the request that the arguments describe, and HTTP. */
#ifndef KILN_CLI_H
#define KILN_CLI_H
#include "kiln.h"
#include <cjson/cJSON.h>

enum { MOST_LISTED = 32 }; /* of one option that may be given again */
struct cli {
    const char *url;        /* --url or KILN_URL */
    const char *target;     /* --target, default "host" */
    const char *policy, *quality, *as, *output, *hwspecs, *trace, *intrinsic, *against;
    bool json, partial;
    int k, threads, runs;
    int wait; /* seconds that the service may hold an answer back until something has ended; 0: it answers at once */
    int nargs;
    const char *const *args;
    int nattrs, ninputs, ngrads; /* --attr NAME=VALUE, --input NAME=FILE, --grad INPUT */
    int ndims, nbinds;           /* --dim NAME=EXTENT, --bind INPUT=NUMBER */
    const char *attrs[MOST_LISTED], *inputs[MOST_LISTED], *grads[MOST_LISTED], *dims[MOST_LISTED], *binds[MOST_LISTED];
    kiln_arena *arena;
    char exe_dir[512];
};

enum { OK = 0, USAGE = 64, DATA = 65, NO_INPUT = 66, UNAVAILABLE = 69, SOFTWARE = 70, CANT_CREATE = 73 }; /* sysexits.h */

int cli_fail(int status, const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* "kiln: ..." on stderr; returns status */
int cli_diag(const kiln_diag *d); /* the diagnostic for people; returns DATA */

/* The request JSON for the operator that the arguments describe: a JSON file, "-" for stdin, an expression, or an ONNX operator name, with
 * inputs NAME=f32:512x512 behind it. NULL after an error message; the caller frees it. */
char *cli_request(struct cli *c, int *status);
char *cli_read_file(struct cli *c, const char *path, size_t *n); /* "-": stdin; NULL after a message */
int cli_write(const struct cli *c, const void *p, size_t n);     /* to -o, or stdout */
const char *cli_default_url(void); /* unix:PATH where a service of this user listens, else the usual address */
bool cli_is_key(const char *s);                                  /* kk1-<64 hex> */

/* Hardware description by id ("host" detects) from the hwspecs folder, or a FILE.json; NULL after a message. */
kiln_hw *cli_hw(struct cli *c, const char *id);
/* The request of the arguments, parsed, and the description of the device it is for; an exit status after a message. */
int cli_program(struct cli *c, kiln_request **r, kiln_hw **hw);
char *cli_hw_text(struct cli *c, const kiln_hw *hw, size_t *n); /* that folder's file of a description; free; NULL after a message */

struct http_answer { long status; char type[128]; char cache[160]; char timing[512]; char *body; size_t n; }; /* free(body) */
/* accept may be NULL; body NULL makes it a GET. False after a message (service not reachable). Shows progress after a second. */
bool http_call(const struct cli *c, const char *path, const char *accept, const char *body, struct http_answer *out);
/* The same with a body of n bytes of that media type. */
bool http_send(const struct cli *c, const char *path, const char *accept, const char *type, const void *body, size_t n, struct http_answer *out);
int http_problem(const struct http_answer *a); /* prints a problem+json answer; returns DATA or UNAVAILABLE */

/* A kernel's JSON answer: posted for an operator, fetched for a key. NULL after a message. cJSON_Delete. */
cJSON *cli_kernel(struct cli *c, int *status);
const char *cli_media(const char *as); /* media type of --as; NULL after a message */
void cli_summary(const char *body, size_t n, const char *cache); /* a kernel's JSON answer for people */
const char *json_text(const cJSON *o, const char *name); /* "" when absent */

/* --dim and --bind as the service and kiln_graph_options_read take them. False after a message. */
struct cli_open { char dims[1024], binds[512]; };
bool cli_open_ends(const struct cli *c, struct cli_open *out);
/* The model that the arguments name, read; free(*file) after the last use of the graph. An exit status after a message. */
int cli_graph(struct cli *c, kiln_graph **g, char **file);
/* Whole models: `kiln compile FILE.onnx -o DIR`, `kiln run DIR`. */
bool cli_is_model(const char *path);  /* a file of a model, by its name */
bool cli_is_folder(const char *path); /* a folder with a compiled model */
int cli_model_compile(struct cli *c);
int cli_model_run(struct cli *c);
#endif
