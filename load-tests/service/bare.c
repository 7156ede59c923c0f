/* The bound of a cache hit: libmicrohttpd as the service uses it, reading the request body and answering with the bytes of a file. */
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>

static struct MHD_Response *answer;

static enum MHD_Result handle(void *cls, struct MHD_Connection *con, const char *url, const char *method, const char *version,
                              const char *data, size_t *n, void **con_cls)
{
    static int seen;
    (void)cls, (void)url, (void)method, (void)version, (void)data;
    if (!*con_cls) {
        *con_cls = &seen;
        return MHD_YES;
    }
    if (*n) {
        *n = 0;
        return MHD_YES;
    }
    return MHD_queue_response(con, 200, answer);
}

int main(int argc, char **argv)
{
    static char body[1 << 20];
    FILE *f = argc == 3 ? fopen(argv[2], "rb") : NULL;
    if (!f) return 2;
    size_t n = fread(body, 1, sizeof body, f);
    fclose(f);
    answer = MHD_create_response_from_buffer(n, body, MHD_RESPMEM_PERSISTENT);
    MHD_add_response_header(answer, "Content-Type", "application/json");
    struct MHD_Daemon *d = MHD_start_daemon(MHD_USE_POLL_INTERNAL_THREAD, (unsigned short)atoi(argv[1]), NULL, NULL, handle, NULL,
                                            MHD_OPTION_CONNECTION_LIMIT, 512u, MHD_OPTION_END);
    if (!d) return 1;
    getchar(); /* serves until its input ends */
    MHD_stop_daemon(d);
    return 0;
}
