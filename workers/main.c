/* kiln-worker: jobs of a fleet (`run`), children (`child`), and a look at what this machine offers (`doctor`). */
#include "workers/child.h"
#include "workers/fleet.h"
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

static int doctor(void)
{
    char dir[512], text[4096];
    worker_tools t;
    const char *const *features;
    if (!workers_exe_dir(dir, sizeof dir)) {
        fprintf(stderr, "kiln-worker: cannot tell where this program lies: is /proc mounted?\n");
        return EX_OSERR;
    }
    workers_find_tools(dir, &t);
    printf("worker    %s\n", t.worker[0] ? t.worker : "not found");
    printf("cc        %s  %s\n", t.cc[0] ? t.cc : "none: only source can be had", t.cc_version);
    printf("nvrtc     %s  %s\n", t.nvrtc[0] ? t.nvrtc : "none", t.nvrtc[0] ? t.nvrtc_version : t.nvrtc_why);
    for (int i = 0; i < t.nnvrtc_archs; i++) {
        printf("%s%d%s", i ? " " : "archs     ", t.nvrtc_archs[i], i + 1 == t.nnvrtc_archs ? "\n" : "");
    }
    printf("tmp       %s\nfeatures ", t.tmp);
    int n = worker_host_features(&features);
    for (int i = 0; i < n; i++) { printf(" %s", features[i]); }
    workers_sandbox_text(&t, text, sizeof text);
    printf("\n\nsandbox\n%s", text);
    return t.worker[0] && strstr(text, "POSSIBLE") == NULL && strstr(text, "own directory: usable") != NULL ? EX_OK : EX_UNAVAILABLE;
}

int main(int argc, char **argv)
{
    if (argc >= 2 && strcmp(argv[1], "child") == 0) { return child_main(argc, argv); }
    if (argc >= 2 && strcmp(argv[1], "run") == 0) { return fleet_main(argc - 2, argv + 2); }
    if (argc >= 2 && strcmp(argv[1], "card") == 0) { return fleet_card(argc - 2, argv + 2); }
    if (argc == 2 && strcmp(argv[1], "doctor") == 0) { return doctor(); }
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("kiln-worker %s\n", kiln_fingerprint());
        return EX_OK;
    }
    fprintf(stderr, "usage: kiln-worker run ...     does jobs of a fleet: --postgres URL or --data DIR\n"
                    "       kiln-worker card ...    name and public key of that worker, for POST /v1/builders; options as of run\n"
                    "       kiln-worker doctor      what this machine offers, and what the sandbox forbids\n"
                    "       kiln-worker --version   the compiler's fingerprint\n"
                    "       kiln-worker child ...   started by the service; not for people\n");
    return EX_USAGE;
}
