/* Fuzz target: the configuration file. */
#include <sys/mman.h>
#include <unistd.h>
#include "service/service.h"
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[40], why[300] = "", *argv[] = {"kilnd", "--config", path, NULL};
    service_config c;
    int fd = memfd_create("config", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    bool ok = service_config_load(&c, 3, argv, why, sizeof why);
    if (!ok && !*why) abort();
    service_config_free(&c);
    close(fd);
    return 0;
}
