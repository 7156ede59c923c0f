/* The CUDA driver, loaded at run time. */
#include "workers/gpu/gpu.h"
#include <dlfcn.h>
#include <stdlib.h>

bool gpu_driver_open(gpu_driver *d, char *why, size_t n)
{
    const char *named = getenv("KILN_LIBCUDA"), *name = named && *named ? named : "libcuda.so.1";
    d->library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!d->library) {
        snprintf(why, n, "no CUDA driver: %s", dlerror());
        return false;
    }
#define X(member, symbol, needed, args)                                                                                                    \
    *(void **)&d->member = dlsym(d->library, symbol);                                                                                      \
    if (needed && !d->member) {                                                                                                            \
        snprintf(why, n, "%s lacks %s: a newer driver is needed", name, symbol);                                                           \
        return false;                                                                                                                      \
    }
#include "workers/gpu/driver.def"
#undef X
    return true;
}
