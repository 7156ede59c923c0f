/* Private directories of children: made 0700, filled, read back without trusting what a child left there, and removed. */
#include "workers/child.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool child_dir_make(const worker_tools *t, char dir[CHILD_DIR_BYTES], char *why, size_t why_n)
{
    snprintf(dir, CHILD_DIR_BYTES, "%s/kiln-XXXXXX", t->tmp[0] ? t->tmp : "/tmp");
    if (mkdtemp(dir) == NULL) {
        snprintf(why, why_n, "cannot make a private directory in %s: %s", t->tmp[0] ? t->tmp : "/tmp", strerror(errno));
        dir[0] = 0;
        return false;
    }
    return true;
}

static int open_in(const char *dir, const char *name, int flags)
{
    int at = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int fd = at < 0 ? -1 : openat(at, name, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (at >= 0) { close(at); }
    return fd;
}

bool child_dir_put(const char *dir, const char *name, const void *p, size_t n)
{
    int fd = open_in(dir, name, O_WRONLY | O_CREAT | O_TRUNC);
    size_t done = 0;
    while (fd >= 0 && done < n) {
        ssize_t w = write(fd, (const char *)p + done, n - done);
        if (w < 0 && errno != EINTR) { break; }
        done += w > 0 ? (size_t)w : 0;
    }
    return fd >= 0 && close(fd) == 0 && done == n;
}

bool child_dir_get(const char *dir, const char *name, size_t max, char **p, size_t *n)
{
    struct stat st;
    int fd = open_in(dir, name, O_RDONLY);
    char *buf = NULL;
    size_t got = 0;
    bool ok = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size <= max;
    if (ok) { buf = malloc((size_t)st.st_size + 1); }
    while (buf != NULL && got < (size_t)st.st_size) {
        ssize_t r = read(fd, buf + got, (size_t)st.st_size - got);
        if (r == 0 || (r < 0 && errno != EINTR)) { break; }
        got += r > 0 ? (size_t)r : 0;
    }
    if (fd >= 0) { close(fd); }
    if (buf == NULL || got != (size_t)st.st_size) {
        free(buf);
        return false;
    }
    buf[got] = 0;
    *p = buf;
    *n = got;
    return true;
}

/* Empties the folder `name` of `at`. The child may have taken away our permissions; depth bounds what it may have nested. */
static void empty(int at, const char *name, int depth)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == EACCES && fchmodat(at, name, 0700, 0) == 0) {
        fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    }
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (d == NULL) {
        if (fd >= 0) { close(fd); }
        return;
    }
    fchmod(fd, 0700);
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) { continue; }
        if (unlinkat(fd, e->d_name, 0) != 0 && depth < 64) {
            empty(fd, e->d_name, depth + 1);
            unlinkat(fd, e->d_name, AT_REMOVEDIR);
        }
    }
    closedir(d);
}

void child_dir_remove(const char *dir)
{
    if (dir[0]) {
        empty(AT_FDCWD, dir, 0);
        rmdir(dir);
    }
}
