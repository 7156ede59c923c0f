/* kiln doctor: what works on this machine and, for what is missing, what to do about it. */
#include "api/cli/cli.h"
#include "workers/workers.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool failed;

static void line(const char *what, bool good, const char *is, const char *cure)
{
    printf("%-4s %-14s %s\n", good ? "ok" : "--", what, is);
    if (!good && *cure) printf("     %-14s %s\n", "", cure);
    if (!good && strcmp(what, "NVRTC")) failed = true;
}

int cmd_doctor(struct cli *c)
{
    worker_tools t;
    char text[900];
    const char *const *features;
    workers_find_tools(c->exe_dir, &t);
    snprintf(text, sizeof text, "%s %s", t.cc, t.cc_version);
    line("C compiler", *t.cc, *t.cc ? text : "none found", "install gcc, or name one in KILN_CC: without it CPU targets give source only");
    snprintf(text, sizeof text, "%s %s", t.nvrtc, t.nvrtc_version);
    line("NVRTC", *t.nvrtc, *t.nvrtc ? text : t.nvrtc_why,
         "optional: `make run` fetches it, or name one in KILN_NVRTC; without it CUDA targets give source only");
    line("kiln-worker", *t.worker, *t.worker ? t.worker : "not beside this program", "run `make build`");
    int n = worker_host_features(&features);
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < n && used < sizeof text - 32; i++) used += (size_t)snprintf(text + used, sizeof text - used, "%s ", features[i]);
    line("CPU features", n > 0, text, "");
    kiln_hw *hw = cli_hw(c, "host");
    line("host target", hw != NULL, hw ? kiln_hw_id(hw) : "none", "name the hwspecs folder with --hwspecs");
    struct http_answer a;
    bool up = http_call(c, "/readyz", NULL, NULL, &a);
    snprintf(text, sizeof text, "%s%s", c->url, up && a.status == 200 ? " is ready" : " does not answer");
    line("service", up && a.status == 200, text, "start it with `make run`");
    if (up) free(a.body);
    return failed ? UNAVAILABLE : OK;
}
