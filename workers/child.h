/* Children: how a compiler or a built-in job runs in a process of its own, limited, sandboxed and killed at its deadline.
 *
 * The way of a child: child_run() starts `kiln-worker child DIR LIMITS READABLE MODE ARGS...` (posix_spawn: cheap from a threaded
 * daemon, and no code of ours runs between fork and exec). That process closes what it inherited, enters the sandbox
 * (sandbox_posix.c), and calls the function of MODE from modes.def. Mode "exec" becomes another program.
 * Internal to workers/; nothing here keeps state between calls. Safe from any thread. The caller's process must not ignore SIGCHLD. */
#ifndef WORKERS_CHILD_H
#define WORKERS_CHILD_H
#include "workers/workers.h"

enum {
    CHILD_CAPTURE_BYTES = 65536, /* kept of stdout and of stderr, each; the rest is read and dropped */
    CHILD_MAX_FDS = 8,
    CHILD_SANDBOX_EXIT = 125 /* exit code of a child that could not enter its sandbox or knows no such mode */
};

typedef struct child_limits {
    int deadline_ms;       /* wall clock from now; then the whole process group gets SIGKILL */
    int cpu_seconds;       /* of each process; 0: derived from the deadline */
    int64_t address_bytes; /* of each process; 0: 4 GiB. Not applied to built-in modes under ASan and TSan, which reserve terabytes */
    int64_t file_bytes;    /* largest file written; 0: 64 MiB */
    int processes;         /* with their threads, together; 0: threads only, neither fork nor exec. "exec" needs > 0 */
    int64_t group_bytes;   /* resident, of all processes together, looked at now and then; 0: address_bytes. Only with processes */
    int nfds;              /* open files handed to the child as descriptors 3, 4, ...; at most CHILD_MAX_FDS */
    int fds[CHILD_MAX_FDS];
} child_limits;

typedef struct child_result {
    bool timed_out;  /* killed at the deadline, by the limit of CPU time, or because worker_tools.stop said so */
    bool stopped;    /* the last of these */
    int exit_code;   /* -1 when killed by a signal */
    int signal;      /* 0 when it exited */
    char *out, *err; /* stdout and stderr: never NULL after child_run() returned true, NUL-terminated, private path removed */
    size_t out_n, err_n;
    double seconds; /* wall clock */
    char over[100]; /* killed because of what its processes took together: what that was; else "" */
    char why[256];  /* when child_run() returned false: why it could not be started */
} child_result;

/* argv: mode, its arguments, NULL. dir: a directory of child_dir_make(), the child's working directory and the only place it can
 * write. False: not started (r->why), a trouble of this machine and not of the job. Release r with child_result_free() in both cases. */
bool child_run(const worker_tools *t, const char *dir, const char *const *argv, const child_limits *limits, child_result *r);
void child_result_free(child_result *r);
/* The same in two steps. What was started runs, and writes into pipes of 64 KiB, until child_wait attends to it, with limits->deadline_ms from
 * there: 0 ends it at once. Whoever started must wait. False of child_start: as of child_run, but r is released. */
typedef struct child_running { int pid, out, err; char dir[600]; } child_running;
bool child_start(const worker_tools *t, const char *dir, const char *const *argv, const child_limits *limits, child_running *c, char why[256]);
bool child_wait(const worker_tools *t, const child_running *c, const child_limits *limits, child_result *r);

/* Whether the session of a child keeps within processes and group_bytes; else why says what it did. */
bool child_watch(int session, const child_limits *l, char *why, size_t n);

/* Private directories, mode 0700 under t->tmp. dir needs 600 bytes. */
enum { CHILD_DIR_BYTES = 600 };
bool child_dir_make(const worker_tools *t, char dir[CHILD_DIR_BYTES], char *why, size_t why_n);
bool child_dir_put(const char *dir, const char *name, const void *p, size_t n);
/* Reads a regular file a child left (links and devices are refused); NUL-terminated beyond *n; free(*p). False: absent or larger than max.
 */
bool child_dir_get(const char *dir, const char *name, size_t max, char **p, size_t *n);
void child_dir_remove(const char *dir); /* with everything in it */

/* ---- the child's side ---- */
/* A mode: argv[0] is its name; the working directory is the private one. Returns the exit code. */
typedef int (*child_mode)(int argc, char **argv);
#define X(name, function) int function(int argc, char **argv);
#include "workers/modes.def"
#undef X
/* main() of `kiln-worker child ...`. A test binary that hands its "child" call here can be its own worker (worker_tools.worker). */
int child_main(int argc, char **argv);

typedef struct sandbox_rules {
    const char *dir;      /* the one writable place */
    const char *readable; /* "path:path": readable beside the system's own folders */
    long long address_bytes, file_bytes;
    int cpu_seconds, processes;
    bool built_in; /* runs this program's own code, so no exec follows */
} sandbox_rules;
bool sandbox_enter(const sandbox_rules *rules, char *why, size_t why_n);

/* What the sandbox forbids on this machine, measured by a child that tries: one line a rule, "network: denied". */
void workers_sandbox_text(const worker_tools *t, char *text, size_t n);
/* Folder of the running binary, for workers_find_tools(). */
bool workers_exe_dir(char *dir, size_t n);

/* True when the text has only directives that cannot read files; else *line says where (1-based). */
bool workers_source_is_closed(const char *p, size_t n, int *line);
/* False when no word of the text is a function of libm, with or without "__builtin_" and a type's suffix: it need not be linked then. */
bool workers_source_names_math(const char *p, size_t n);
/* Asks for AMX tile state in this process; needed once before the first tile instruction. */
bool worker_permit_amx(void);
#endif
