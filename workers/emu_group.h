/* wgmma emulated: 128 threads issue an instruction over two matrices in shared memory, which runs until its group must have ended. Internal to
 * workers/. */
#ifndef WORKERS_EMU_GROUP_H
#define WORKERS_EMU_GROUP_H
#include <stdbool.h>

enum { EMU_GROUP = 128, EMU_GROUP_SEEN = -3, EMU_GROUP_READY = -2, EMU_GROUP_COMMIT = -1, EMU_ISSUED = 256 };

/* An instruction as its threads issue it: by number, in the same order. d: registers of each thread. */
typedef struct emu_issue { char ptx[64]; unsigned long long a, b; int ta, tb, commit; void *d[EMU_GROUP][128]; } emu_issue;
/* commits, issued: of each thread; done: instructions that have run; list holds those from `done` on. */
typedef struct emu_group { int issued[EMU_GROUP], commits[EMU_GROUP], done, n; emu_issue *list[EMU_ISSUED]; } emu_group;

void emu_group_open(emu_group *g); /* nothing is issued; keeps its memory */
/* NULL, or what is wrong. thread: of the group. Descriptors are the device's: addresses from `base` on, swizzled by 128 bytes. */
const char *emu_group_issue(emu_group *g, int thread, const char *ptx, void **d, unsigned long long a, unsigned long long b, int ta, int tb);
/* All threads have issued what thread `thread` waits for when all but its last `running` commits are to have ended. */
bool emu_group_ready(const emu_group *g, int thread, int running);
const char *emu_group_wait(emu_group *g, int thread, int running, const char *base, long bytes);
#endif
