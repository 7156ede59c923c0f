/* The operating system's part of CPU features: whether AMX may be asked for, and asking. */
#include "workers/child.h"
#include "workers/features.h"
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { GET_XCOMP_SUPP = 0x1021, REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18 }; /* arch_prctl, Linux 5.16 */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const char *found[FEATURES_MAX];
static int nfound;

static bool kernel_gives_amx(void)
{
#if defined(__x86_64__)
    uint64_t mask = 0;
    return syscall(SYS_arch_prctl, GET_XCOMP_SUPP, &mask) == 0 && (mask >> TILE_DATA & 1);
#else
    return false;
#endif
}

static void scan(void) { nfound = features_scan(found, kernel_gives_amx()); }

int worker_host_features(const char *const **names)
{
    pthread_once(&once, scan);
    *names = found;
    return nfound;
}

bool worker_permit_amx(void)
{
#if defined(__x86_64__)
    return syscall(SYS_arch_prctl, REQ_XCOMP_PERM, TILE_DATA) == 0;
#else
    return false;
#endif
}
