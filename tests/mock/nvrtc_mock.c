/* An NVRTC whose assembler serialises every wgmma (C7514), reports the rest as clean, and makes empty binaries: what the real one does to a schedule
 * now and then, done to all of them. Nothing is compiled. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct program { char *log; } program;

static void say(program *p, const char *mark, const char *name, size_t n, const char *rest)
{
    size_t have = strlen(p->log), more = strlen(mark) + n + strlen(rest) + 1;
    p->log = realloc(p->log, have + more);
    if (p->log) snprintf(p->log + have, more, "%s%.*s%s", mark, (int)n, name, rest);
}

int nvrtcVersion(int *major, int *minor) { return *major = 13, *minor = 0, 0; }
int nvrtcGetNumSupportedArchs(int *n) { return *n = 2, 0; }
int nvrtcGetSupportedArchs(int *list) { return list[0] = 80, list[1] = 90, 0; }
const char *nvrtcGetErrorString(int result) { return result ? "no memory" : "success"; }

int nvrtcCreateProgram(void **out, const char *src, const char *name, int nheaders, const char *const *headers, const char *const *names)
{
    program *p = calloc(1, sizeof *p);
    (void)name, (void)nheaders, (void)headers, (void)names;
    if (!p || !(p->log = calloc(1, 1))) return 1;
    for (const char *at = src; p->log && (at = strstr(at, "KN_ENTRY __launch")); at++) { /* an entry's name is the next kiln_NAME( */
        const char *from = strstr(at, "kiln_");
        if (!from) break;
        say(p, "ptxas info    : Compiling entry function '", from, strcspn(from, "("), "' for 'sm_90a'\n"
            "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\nptxas info    : Used 40 registers, used 1 barriers\n");
    }
    if (p->log && strstr(src, "wgmma.mma_async"))
        say(p, "ptxas info    : (C7514) Potential Performance Loss: wgmma.mma_async instructions are serialized\n", "", 0, "");
    *out = p;
    return p->log ? 0 : 1;
}

int nvrtcCompileProgram(void *p, int n, const char *const *options) { return (void)p, (void)n, (void)options, 0; }
int nvrtcGetProgramLogSize(void *p, size_t *n) { return *n = strlen(((program *)p)->log) + 1, 0; }
int nvrtcGetProgramLog(void *p, char *text) { return strcpy(text, ((program *)p)->log), 0; }
int nvrtcGetPTXSize(void *p, size_t *n) { return (void)p, *n = 4, 0; }
int nvrtcGetPTX(void *p, char *text) { return (void)p, memcpy(text, "ptx", 4), 0; }
int nvrtcGetCUBINSize(void *p, size_t *n) { return (void)p, *n = 5, 0; }
int nvrtcGetCUBIN(void *p, char *image) { return (void)p, memcpy(image, "cubin", 5), 0; }
