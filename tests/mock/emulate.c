/* Launches of the mock driver carried out by the emulator: threads, clusters, copies and tensor maps as the launcher encoded them. */
#include "tests/mock/emulate.h"
#include "workers/emu_machine.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { LIBRARIES = 256, POISON = 0xff };
typedef struct device_map { unsigned long long address, map; } device_map; /* k_map of the text */

static struct { char path[512]; void *so; } libraries[LIBRARIES];
static int nlibraries;

static void *find(void *so, const char *name) { return dlsym(so, name); }

static void *library(const char *path)
{
    for (int i = 0; i < nlibraries; i++)
        if (!strcmp(libraries[i].path, path)) return libraries[i].so;
    void *so = nlibraries < LIBRARIES ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!so || !emu_hand_over(find, so)) return NULL;
    snprintf(libraries[nlibraries].path, sizeof libraries[nlibraries].path, "%s", path);
    return libraries[nlibraries++].so = so;
}

static void read_map(const mock_map *m, emu_map *to)
{
    *to = (emu_map){.rank = m->rank, .bytes = m->bytes, .swizzle = m->swizzle};
    for (int i = 0; i < m->rank; i++) {
        to->box[i] = m->box[i];
        to->dims[i] = m->dims[i];
        to->strides[i] = i ? m->strides[i - 1] : 0;
    }
    const int window[7] = {m->pixels, m->lower[0], m->lower[1], m->upper[0], m->upper[1], m->step[0], m->step[1]};
    if (m->pixels) memcpy(to->window, window, sizeof window);
}

static void close_machine(void)
{
    for (int i = 0; i < emu.nblocks; i++) {
        free(emu.blocks[i]->memory);
        free(emu.blocks[i]);
        emu.blocks[i] = NULL;
    }
    munmap(emu.stacks, (size_t)(128 << 10) * (size_t)(emu.nthreads * emu.nblocks));
}

static const char *open_machine(void *so, int launch, unsigned grid, unsigned threads, unsigned cluster)
{
    char name[40];
    snprintf(name, sizeof name, "mock_call_%d", launch);
    void *call = dlsym(so, name), *shared = dlsym(so, "emu_shared");
    emu_dim3 *block_dim = dlsym(so, "emu_block_dim"), *grid_dim = dlsym(so, "emu_grid_dim");
    emu.thread = dlsym(so, "emu_thread");
    emu.block = dlsym(so, "emu_block");
    if (!call || !shared || !block_dim || !grid_dim || !emu.thread || !emu.block) return "the emulator's runtime is missing";
    if (threads > EMU_THREADS || cluster > EMU_BLOCKS || grid % cluster) return "a launch that the emulator cannot do";
    void (*bounds)(char **, char **);
    memcpy(&emu.call, &call, sizeof call);
    memcpy(&bounds, &shared, sizeof shared);
    bounds(&emu.shared, &emu.shared_end);
    emu.shared_base = emu.shared - (uintptr_t)emu.shared % 1024;
    *block_dim = (emu_dim3){threads, 1, 1};
    *grid_dim = (emu_dim3){grid, 1, 1};
    return emu_hand_over(find, so) && emu_machine_open((int)threads, (int)cluster) ? NULL : "no memory for stacks";
}

const char *mock_emulate(const char *so, int launch, unsigned grid, unsigned threads, unsigned cluster, const char *params, void **args)
{
    static emu_map maps[VERIFY_MAX_ARGS];
    static device_map given[VERIFY_MAX_ARGS];
    void *lib = library(so);
    const char *t = params, *why = lib ? open_machine(lib, launch, grid, threads, cluster) : "a shared object cannot be loaded";
    if (why) return why;
    for (int i = 0; *t && i < VERIFY_MAX_ARGS; i++, t += strcspn(t, ","), t += *t == ',') {
        emu.args[i] = args[i];
        if (strncmp(t, "tmap", 4)) continue;
        read_map(args[i], &maps[i]);
        given[i] = (device_map){((const mock_map *)args[i])->address, (unsigned long long)(uintptr_t)&maps[i]};
        emu.args[i] = &given[i];
    }
    bool ok = true;
    for (int64_t first = 0; first < (int64_t)grid && ok; first += emu.nblocks) ok = emu_run_cluster(first, 0, POISON);
    close_machine();
    return ok ? NULL : emu.trouble;
}
