/* kilnd: listens, opens the store, serves until SIGTERM or SIGINT, drains. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include "service/auth.h"
#include "service/sign.h"
#include "service/status.h"
#include "service/stream.h"
#include "service/fleet.h"
#include "service/graphs.h"

static void say(const char *text) { puts(text); }

static void replace(char **at, const char *text)
{
    free(*at);
    *at = strdup(text);
}

static bool make_folders(const char *path)
{
    char p[1024];
    snprintf(p, sizeof p, "%s", path);
    for (char *s = p + 1; *s; s++) {
        if (*s != '/') continue;
        *s = 0;
        mkdir(p, 0755);
        *s = '/';
    }
    mkdir(p, 0755);
    return access(p, W_OK) == 0;
}

static void default_places(service_config *c, const char *exe_dir)
{
    char text[1024];
    const char *xdg = getenv("XDG_DATA_HOME"), *const places[] = {"hwspecs", NULL, "/usr/share/kiln/hwspecs"};
    if (!*c->data) {
        snprintf(text, sizeof text, "%s%s", xdg && *xdg ? xdg : ".", xdg && *xdg ? "/kiln" : "/build/data");
        replace(&c->data, text);
    }
    if (!*c->socket) {
        snprintf(text, sizeof text, "%s/kiln.sock", c->data);
        replace(&c->socket, strlen(text) < 108 ? text : "none");
    }
    for (int i = 0; !*c->hwspecs && i < 3; i++) {
        snprintf(text, sizeof text, "%s/../hwspecs", exe_dir);
        const char *place = places[i] ? places[i] : text;
        if (!access(place, R_OK)) replace(&c->hwspecs, place);
    }
}

/* Everything behind the listener. */
static bool open_parts(service_app *app, const char *exe_dir, char *why, size_t size)
{
    cache_error e = {""};
    cache_config cc = {.data_dir = app->config.data, .memory_bytes = (int64_t)app->config.memory_mib << 20,
                       .redis_url = app->config.redis, .postgres_url = app->config.postgres};
    workers_find_tools(exe_dir, &app->tools);
    if (!*app->tools.worker && app->config.compile_here) {
        snprintf(why, size, "kiln-child is missing: compilers run inside it. Looked for KILN_WORKER, and for kiln-child and kiln-worker in %s, "
                 "then above it; with --compile-here=0 this service leaves building to the workers of a fleet", exe_dir);
        return false;
    }
    if (!make_folders(app->config.data)) {
        snprintf(why, size, "cannot write in %s", app->config.data);
        return false;
    }
    app->cache = cache_open(&cc, &e);
    if (!app->cache) {
        snprintf(why, size, "%s", e.message);
        return false;
    }
    app->signer = service_signer_open(app, why, size);
    if (!app->signer) return false;
    seals_watch(service_signer_seals(app->signer), app->cache);
    app->targets = service_targets_open(app, why, size);
    if (!app->targets) return false;
    app->fleet = service_fleet_open(app, why, size);
    if (!app->fleet) return false;
    service_stream_start(app->stream);
    if (!service_auth_load(app->auth)) service_log("warning", "no-keys", "the keys cannot be read yet");
    if (!*app->tools.cc) service_log("warning", "no-compiler", "no C compiler: CPU kernels are answered as source only");
    if (!*app->tools.nvrtc) service_log("info", "no-nvrtc", "%s", app->tools.nvrtc_why);
    atomic_store(&app->ready, true);
    service_log("info", "ready", "cc %s, nvrtc %s", app->tools.cc_version, app->tools.nvrtc_version);
    return true;
}

static void drain(service_app *app, void *http)
{
    atomic_store(&app->draining, true);
    service_log("info", "draining", "%s", "");
    service_http_quiesce(http);
    double until = service_now_ms() + 10000;
    while (service_now_ms() < until && service_jobs_count(app->jobs, SERVICE_QUEUED) + service_jobs_count(app->jobs, SERVICE_RUNNING) > 0)
        usleep(20000);
    service_jobs_wake_all(app->jobs);
    service_graphs_wake_all(app->graphs);
    service_stream_end(app->stream);
    usleep(50000); /* lets woken connections send their answers */
    service_http_stop(http);
}

static int serve(service_app *app, const char *exe_dir)
{
    char why[600] = "out of memory";
    sigset_t set;
    int sig = 0, threads = app->config.compiles ? app->config.compiles : app->cpus;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    make_folders(app->config.data); /* the socket lies in it; open_parts says when it cannot be written */
    app->metrics = service_metrics_open();
    app->memo = service_memo_open((int64_t)app->config.memo_mib << 20);
    app->jobs = service_jobs_open(app);
    app->pool = worker_pool_open(threads, app->config.queue);
    app->graphs = service_graphs_open(app);
    app->auth = service_auth_open(app, why, sizeof why);
    app->stream = service_stream_open(app);
    app->status = service_status_open();
    bool made = app->auth && app->graphs && app->stream && app->status && app->metrics && app->memo && app->jobs && app->pool;
    void *http = made ? service_http_start(app, why, sizeof why) : NULL;
    bool ok = http && open_parts(app, exe_dir, why, sizeof why);
    if (!ok) service_log("error", "start", "%s", why);
    if (ok) service_notify("READY=1");
    if (ok) sigwait(&set, &sig);
    service_notify("STOPPING=1");
    if (http) drain(app, http);
    service_graphs_close(app->graphs);
    worker_pool_close(app->pool, false);
    service_stream_close(app->stream);
    service_status_close(app->status);
    service_fleet_close(app->fleet);
    service_jobs_close(app->jobs);
    service_memo_close(app->memo);
    service_targets_close(app->targets);
    service_auth_close(app->auth);
    service_signer_close(app->signer);
    if (app->cache) cache_close(app->cache);
    service_metrics_close(app->metrics);
    service_log("info", "ended", "%s", "");
    return ok ? 0 : 1;
}

int main(int argc, char **argv)
{
    static service_app app;
    char why[600], exe_dir[600] = ".";
    struct sockaddr_storage address;
    size_t len;
    ssize_t n = readlink("/proc/self/exe", exe_dir, sizeof exe_dir - 1);
    if (n > 0) exe_dir[n] = 0;
    if (strrchr(exe_dir, '/')) *strrchr(exe_dir, '/') = 0;
    if (!service_config_load(&app.config, argc, argv, why, sizeof why)) {
        fprintf(stderr, "kilnd: %s\n", why);
        return 78;
    }
    if (app.config.help) {
        puts("usage: kilnd [--listen ADDR:PORT] [--data DIR] [options]\n\n  --config FILE    lines \"name = value\"\n  --check-config   "
             "say whether the settings are right, and end\n"
             "  --version\n");
        service_config_help(say);
        return 0;
    }
    if (app.config.version) {
        printf("kilnd %s (%s)\n", SERVICE_VERSION, kiln_fingerprint());
        return 0;
    }
    default_places(&app.config, exe_dir);
    if (!service_http_address(app.config.listen, app.config.allow_public || app.config.auth, &address, &len, why, sizeof why)) {
        fprintf(stderr, "kilnd: %s\n", why);
        return 78;
    }
    if (!*app.config.tls_cert != !*app.config.tls_key) {
        fprintf(stderr, "kilnd: tls_cert and tls_key: both or none\n");
        return 78;
    }
    if (app.config.check) {
        puts("kilnd: the configuration is right");
        return 0;
    }
    app.started_ms = service_unix_ms();
    app.started = service_now_ms();
    app.cpus = (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (app.cpus < 1) app.cpus = 1;
    int status = serve(&app, exe_dir);
    service_config_free(&app.config);
    return status;
}
