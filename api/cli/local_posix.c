/* Hardware descriptions from the hwspecs folder, for the verbs that need no service. */
#include <sys/stat.h>
#include "api/cli/cli.h"
#include "workers/workers.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool folder(struct cli *c, char *out, size_t cap)
{
    char beside[600];
    snprintf(beside, sizeof beside, "%s/../hwspecs", c->exe_dir);
    const char *const places[] = {c->hwspecs, "hwspecs", beside, "/usr/share/kiln/hwspecs"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        if (!*places[i] || access(places[i], R_OK)) continue;
        snprintf(out, cap, "%s", places[i]);
        return true;
    }
    cli_fail(NO_INPUT, "no folder of hardware descriptions; name one with --hwspecs or KILN_HWSPECS");
    return false;
}

static kiln_hw *load(struct cli *c, const char *path, bool host)
{
    size_t n;
    char *text = cli_read_file(c, path, &n);
    kiln_hw *hw = NULL;
    kiln_diag d = {0};
    if (!text) return NULL;
    if (host) { /* this machine's own number of cores */
        cJSON *o = cJSON_ParseWithLength(text, n), *units = cJSON_GetObjectItemCaseSensitive(o, "units");
        if (cJSON_IsNumber(units)) cJSON_SetNumberValue(units, (double)sysconf(_SC_NPROCESSORS_ONLN));
        char *patched = cJSON_PrintUnformatted(o);
        cJSON_Delete(o);
        if (patched) {
            free(text);
            text = patched;
            n = strlen(text);
        }
    }
    if (kiln_hw_parse(c->arena, (kiln_bytes){text, n}, &hw, &d) != KILN_OK) {
        fprintf(stderr, "kiln: %s:\n", path);
        cli_diag(&d);
    }
    free(text);
    return hw;
}

static bool host_can(const kiln_hw *hw)
{
    const char *const *need, *const *have;
    int n = kiln_hw_features(hw, &need), m = worker_host_features(&have);
    for (int i = 0; i < n; i++) {
        bool found = false;
        for (int k = 0; k < m && !found; k++) found = !strcmp(need[i], have[k]);
        if (!found) return false;
    }
    return true;
}

/* The description with the most features that this machine has all of. */
static kiln_hw *detect(struct cli *c, const char *dir)
{
    kiln_hw *best = NULL;
    int most = -1;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[900];
        const char *const *names;
        if (strncmp(e->d_name, "x86-64-", 7) || !strstr(e->d_name, ".json")) continue;
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        kiln_hw *hw = load(c, path, true);
        if (!hw || !host_can(hw) || kiln_hw_features(hw, &names) <= most) continue;
        most = kiln_hw_features(hw, &names);
        best = hw;
    }
    if (d) closedir(d);
    if (!best) cli_fail(DATA, "no hardware description fits this machine; kiln doctor lists its features");
    return best;
}

kiln_hw *cli_hw(struct cli *c, const char *id)
{
    char dir[600], path[900];
    size_t n = strlen(id);
    if (n > 5 && !strcmp(id + n - 5, ".json")) return load(c, id, false);
    if (!folder(c, dir, sizeof dir)) return NULL;
    if (!strcmp(id, "host")) return detect(c, dir);
    snprintf(path, sizeof path, "%s/%.200s.json", dir, id);
    if (strchr(id, '/') || access(path, R_OK)) {
        cli_fail(DATA, "no target \"%s\" in %s (kiln targets lists those of the service)", id, dir);
        return NULL;
    }
    return load(c, path, false);
}

char *cli_hw_text(struct cli *c, const kiln_hw *hw, size_t *n)
{
    char dir[600], path[900];
    if (!folder(c, dir, sizeof dir)) return NULL;
    snprintf(path, sizeof path, "%s/%.200s.json", dir, kiln_hw_id(hw));
    return cli_read_file(c, path, n);
}

/* Where kilnd puts its socket by default, for the same user; and where the packaged service has it. */
const char *cli_default_url(void)
{
    static char url[1100];
    const char *xdg = getenv("XDG_DATA_HOME"), *given = getenv("KILN_SOCKET");
    char places[3][1024];
    int n;
    struct stat s;
    snprintf(places[0], sizeof places[0], "%s", given ? given : "");
    snprintf(places[1], sizeof places[1], "%s%s/kiln.sock", xdg && *xdg ? xdg : ".", xdg && *xdg ? "/kiln" : "/build/data");
    snprintf(places[2], sizeof places[2], "/run/kiln/kiln.sock");
    for (int i = 0; i < 3; i++) {
        if (!*places[i] || stat(places[i], &s) || !S_ISSOCK(s.st_mode) || access(places[i], R_OK | W_OK)) continue;
        n = snprintf(url, sizeof url, "unix:");
        memcpy(url + n, places[i], sizeof places[i]);
        return url;
    }
    return "http://127.0.0.1:8787";
}
