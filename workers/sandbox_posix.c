/* The child's side of the sandbox: resource limits, Landlock (files), seccomp (system calls), and the entry of `kiln-worker child`. */
#include "workers/child.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SHADOWED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SHADOWED 1
#endif
#endif
#ifndef SHADOWED
#define SHADOWED 0
#endif

/* Landlock's kernel interface (Documentation/userspace-api/landlock.rst), spelled out because distribution headers lag behind kernels. */
enum {
    LL_CREATE = 444,
    LL_ADD_RULE = 445,
    LL_RESTRICT = 446,
    LL_VERSION = 1,
    LL_PATH_BENEATH = 1,
    LL_EXECUTE = 1 << 0,
    LL_WRITE_FILE = 1 << 1,
    LL_READ_FILE = 1 << 2,
    LL_READ_DIR = 1 << 3,
    LL_REMOVE_DIR = 1 << 4,
    LL_REMOVE_FILE = 1 << 5,
    LL_MAKE_DIR = 1 << 7,
    LL_MAKE_REG = 1 << 8,
    LL_ABI1 = (1 << 13) - 1,
    LL_REFER = 1 << 13,
    LL_TRUNCATE = 1 << 14,
    LL_IOCTL = 1 << 15,
    LL_TCP = 3,
    LL_SCOPED = 3,
    LL_OF_FILES = LL_EXECUTE | LL_WRITE_FILE | LL_READ_FILE | LL_TRUNCATE
};
typedef struct landlock_ruleset {
    uint64_t files, net, scoped;
} landlock_ruleset;
typedef struct landlock_path {
    uint64_t allowed;
    int32_t fd;
} __attribute__((packed)) landlock_path;

/* What compilers, NVRTC and the C library read; absent ones are passed over. /proc/self is this child's own. */
static const char *const system_paths[] = {"/usr",
                                           "/lib",
                                           "/lib32",
                                           "/lib64",
                                           "/libx32",
                                           "/bin",
                                           "/sbin",
                                           "/opt",
                                           "/nix",
                                           "/gnu",
                                           "/etc/ld.so.cache",
                                           "/etc/alternatives",
                                           "/etc/localtime",
                                           "/proc/self",
                                           "/proc/cpuinfo",
                                           "/proc/meminfo",
                                           "/proc/sys/vm/overcommit_memory",
                                           "/sys/devices/system/cpu",
                                           "/sys/devices/system/node",
                                           "/dev/zero",
                                           "/dev/urandom",
                                           "/dev/random"};

static void allow_path(int ruleset, const char *path, uint64_t rights)
{
    struct stat st;
    landlock_path rule = {rights, open(path, O_PATH | O_CLOEXEC)};
    if (rule.fd < 0) { return; }
    if (fstat(rule.fd, &st) == 0 && !S_ISDIR(st.st_mode)) { rule.allowed &= LL_OF_FILES; }
    syscall(LL_ADD_RULE, ruleset, LL_PATH_BENEATH, &rule, 0);
    close(rule.fd);
}

static void allow_list(int ruleset, const char *paths, uint64_t rights)
{
    char one[1024];
    while (*paths) {
        size_t n = strcspn(paths, ":");
        if (n > 0 && n < sizeof one) {
            memcpy(one, paths, n);
            one[n] = 0;
            allow_path(ruleset, one, rights);
        }
        paths += n + (paths[n] == ':');
    }
}

/* Without Landlock in the kernel the child goes on: user and mode bits still hold, and `kiln-worker doctor` says so. */
static bool enter_landlock(const sandbox_rules *rules)
{
    long abi = syscall(LL_CREATE, NULL, 0, LL_VERSION);
    if (abi < 1) { return true; }
    landlock_ruleset set = {LL_ABI1 | (abi >= 2 ? LL_REFER : 0) | (abi >= 3 ? LL_TRUNCATE : 0) | (abi >= 5 ? LL_IOCTL : 0),
                            abi >= 4 ? LL_TCP : 0, abi >= 6 ? LL_SCOPED : 0};
    size_t size = abi >= 6 ? 24 : abi >= 4 ? 16 : 8;
    int fd = (int)syscall(LL_CREATE, &set, size, 0);
    if (fd < 0) { return false; }
    const uint64_t read_rights = LL_EXECUTE | LL_READ_FILE | LL_READ_DIR;
    for (size_t i = 0; i < sizeof system_paths / sizeof *system_paths; i++) { allow_path(fd, system_paths[i], read_rights); }
    allow_list(fd, rules->readable, read_rights);
    allow_path(fd, "/dev/null", LL_READ_FILE | LL_WRITE_FILE | (set.files & LL_TRUNCATE));
    allow_path(fd, rules->dir,
               (LL_READ_FILE | LL_READ_DIR | LL_WRITE_FILE | LL_REMOVE_DIR | LL_REMOVE_FILE | LL_MAKE_DIR | LL_MAKE_REG | LL_TRUNCATE) &
                   set.files);
    bool ok = syscall(LL_RESTRICT, fd, 0) == 0;
    close(fd);
    return ok;
}

static bool deny(scmp_filter_ctx f, int call)
{
    int rc = seccomp_rule_add(f, SCMP_ACT_ERRNO(EPERM), call, 0);
    return rc == 0 || call < 0; /* negative: this architecture has no such call */
}

static bool deny_processes(scmp_filter_ctx f)
{
    bool ok = true;
#define D(call)
#define A(call) ok = deny(f, SCMP_SYS(call)) && ok;
#include "workers/denied.def"
#undef D
#undef A
    ok = seccomp_rule_add(f, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1, SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0)) == 0 && ok;
    return seccomp_rule_add(f, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(tgkill), 1, SCMP_A0(SCMP_CMP_NE, (scmp_datum_t)getpid(), 0)) == 0 && ok;
}

/* Everything is allowed but what denied.def names: compilers of many versions must run, so a list of the allowed would break on them.
 * clone3 hides its flags behind a pointer; "no such call" makes C libraries fall back to clone, whose flags can be judged. */
static bool enter_seccomp(const sandbox_rules *rules)
{
    scmp_filter_ctx f = seccomp_init(SCMP_ACT_ALLOW);
    if (f == NULL) { return false; }
    bool ok = seccomp_rule_add(f, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0) == 0;
#define D(call) ok = deny(f, SCMP_SYS(call)) && ok;
#define A(call)
#include "workers/denied.def"
#undef D
#undef A
    static const unsigned spaces[] = {CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWNET, CLONE_NEWPID, CLONE_NEWIPC, CLONE_NEWUTS, CLONE_NEWCGROUP};
    for (size_t i = 0; rules->processes > 0 && i < sizeof spaces / sizeof *spaces; i++) {
        ok = seccomp_rule_add(f, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1, SCMP_A0(SCMP_CMP_MASKED_EQ, spaces[i], spaces[i])) == 0 && ok;
    }
    if (rules->processes <= 0) { ok = deny_processes(f) && ok; }
    ok = ok && seccomp_load(f) == 0;
    seccomp_release(f);
    return ok;
}

static bool limit(int what, long long value)
{
    struct rlimit r = {(rlim_t)value, (rlim_t)value}, old;
    if (getrlimit(what, &old) == 0 && old.rlim_max != RLIM_INFINITY && r.rlim_max > old.rlim_max) {
        r.rlim_cur = r.rlim_max = old.rlim_max; /* the machine is stricter already */
    }
    return setrlimit(what, &r) == 0;
}

/* RLIMIT_NPROC counts every thread of the user, also those outside: all threads of the machine are an upper bound of these. */
static long long thread_limit(int processes)
{
    int running = 0, all = 0;
    FILE *f = fopen("/proc/loadavg", "re");
    if (f != NULL) {
        if (fscanf(f, "%*f %*f %*f %d/%d", &running, &all) != 2) { all = 0; }
        fclose(f);
    }
    return all > 0 ? (long long)all + processes : 0;
}

bool sandbox_enter(const sandbox_rules *rules, char *why, size_t why_n)
{
    const char *at = NULL;
    long long threads = rules->processes > 0 ? thread_limit(rules->processes) : 0;
    struct rlimit cpu = {(rlim_t)rules->cpu_seconds, (rlim_t)rules->cpu_seconds + 1}; /* SIGXCPU, then SIGKILL */
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
        at = "no_new_privs";
    } else if (!enter_landlock(rules)) {
        at = "landlock";
    } else if (chdir(rules->dir) != 0) {
        at = "private directory";
    } else if (!enter_seccomp(rules)) {
        at = "seccomp";
    } else if (!limit(RLIMIT_CORE, 0) || !limit(RLIMIT_NOFILE, 256) || !limit(RLIMIT_FSIZE, rules->file_bytes) ||
               setrlimit(RLIMIT_CPU, &cpu) != 0 || (threads > 0 && !limit(RLIMIT_NPROC, threads))) {
        at = "limits";
    } else if (!(SHADOWED && rules->built_in) && !limit(RLIMIT_AS, rules->address_bytes)) {
        at = "address space limit";
    }
    if (at != NULL) { snprintf(why, why_n, "cannot enter the sandbox: %s: %s", at, strerror(errno)); }
    return at == NULL;
}

static const struct {
    const char *name;
    child_mode run;
} modes[] = {
#define X(name, function) {#name, function},
#include "workers/modes.def"
#undef X
};

int child_main(int argc, char **argv)
{
    sandbox_rules rules = {0};
    int parent = 0, nfds = 0;
    char why[256] = "usage: kiln-worker child DIR LIMITS READABLE MODE [ARGS...]";
    if (argc < 6 || sscanf(argv[3], "as=%lld,file=%lld,cpu=%d,procs=%d,fds=%d,parent=%d", &rules.address_bytes, &rules.file_bytes,
                           &rules.cpu_seconds, &rules.processes, &nfds, &parent) != 6) {
        fprintf(stderr, "%s\n", why);
        return CHILD_SANDBOX_EXIT;
    }
    size_t m = 0;
    while (m < sizeof modes / sizeof *modes && strcmp(modes[m].name, argv[5]) != 0) { m++; }
    if (m == sizeof modes / sizeof *modes) {
        fprintf(stderr, "kiln-worker: no mode \"%s\"\n", argv[5]);
        return CHILD_SANDBOX_EXIT;
    }
    rules.dir = argv[2];
    rules.readable = argv[4];
    rules.built_in = strcmp(argv[5], "exec") != 0;
    closefrom(3 + nfds);
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (getppid() != parent) {
        return CHILD_SANDBOX_EXIT; /* the parent died before the line above took hold: nobody waits for an answer */
    }
    if (!sandbox_enter(&rules, why, sizeof why)) {
        fprintf(stderr, "kiln-worker: %s\n", why);
        return CHILD_SANDBOX_EXIT;
    }
    int code = modes[m].run(argc - 5, argv + 5);
    fflush(NULL);
    _exit(code); /* no exit handlers: a kernel may have registered some, and a leak checker would need what the sandbox forbids */
}

int child_mode_exec(int argc, char **argv)
{
    if (argc < 2) { return CHILD_SANDBOX_EXIT; }
    execv(argv[1], argv + 1);
    fprintf(stderr, "kiln-worker: cannot start %s: %s\n", argv[1], strerror(errno));
    return CHILD_SANDBOX_EXIT;
}
