/* Tells systemd (Type=notify) how the process is, by the protocol of sd_notify(3): one datagram to $NOTIFY_SOCKET. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "service/service.h"

void service_notify(const char *text)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    const char *path = getenv("NOTIFY_SOCKET");
    size_t n = path ? strlen(path) : 0;
    if (!n || n >= sizeof at.sun_path || (*path != '/' && *path != '@')) return;
    memcpy(at.sun_path, path, n);
    if (*path == '@') at.sun_path[0] = 0;
    int s = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (s < 0) return;
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    if (sendto(s, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr *)&at, size) < 0)
        service_log("warning", "notify", "systemd did not hear \"%s\"", text);
    close(s);
}
