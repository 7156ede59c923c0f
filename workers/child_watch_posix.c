/* What all processes of a child take together: the kernel limits each of them, and their number not at all for root. */
#include "workers/child.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Threads and resident bytes of a process, when it is of the session; of the fields of proc(5) stat behind the name: 4th, 18th, 22nd. */
static bool of_session(const char *pid, int session, long long *threads, long long *bytes)
{
    char path[64], text[1024];
    int its;
    long long pages;
    snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    FILE *f = fopen(path, "re");
    if (f == NULL) { return false; }
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    const char *at = text; /* the name may hold anything, but ends at the last bracket */
    for (const char *p = text; *p; p++) { at = *p == ')' ? p + 1 : at; }
    static const char fields[] = " %*c %*d %*d %d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %lld %*d %*u %*u %lld";
    if (sscanf(at, fields, &its, threads, &pages) != 3) { return false; }
    *bytes = pages * sysconf(_SC_PAGESIZE);
    return its == session;
}

bool child_watch(int session, const child_limits *l, char *why, size_t n)
{
    long long threads = 0, bytes = 0, each = l->address_bytes > 0 ? l->address_bytes : INT64_C(4) << 30;
    long long most = l->group_bytes > 0 ? l->group_bytes : each;
    DIR *d = opendir("/proc");
    if (d == NULL) { return true; }
    for (struct dirent *e; threads <= l->processes && bytes <= most && (e = readdir(d)) != NULL;) {
        long long t, b;
        if (*e->d_name < '1' || *e->d_name > '9' || !of_session(e->d_name, session, &t, &b)) { continue; }
        threads += t;
        bytes += b;
    }
    closedir(d);
    if (threads > l->processes) { snprintf(why, n, "it started more than %d processes", l->processes); }
    if (bytes > most) { snprintf(why, n, "its processes took more than %lld MiB of memory together", most >> 20); }
    return threads <= l->processes && bytes <= most;
}
