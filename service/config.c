/* Settings from flags, environment, file and defaults, all driven by config.def. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "service/service.h"

typedef struct setting {
    const char *name, *def, *meaning;
    char kind;
    long low, high;
    size_t at;
} setting;
static const setting settings[] = {
#define X(name, kind, def, low, high, meaning) {#name, def, meaning, #kind[0], low, high, offsetof(service_config, name)},
#include "service/config.def"
#undef X
};
enum { NSETTINGS = sizeof settings / sizeof *settings };

static bool set(service_config *c, const setting *s, const char *text, const char *from, char *why, size_t size)
{
    void *at = (char *)c + s->at;
    if (s->kind == 'S') {
        char *copy = strdup(text);
        if (!copy) return false;
        free(*(char **)at);
        *(char **)at = copy;
        return true;
    }
    char *end;
    errno = 0;
    if (s->kind == 'B' && (!strcmp(text, "true") || !strcmp(text, "yes"))) text = "1";
    if (s->kind == 'B' && (!strcmp(text, "false") || !strcmp(text, "no"))) text = "0";
    long v = strtol(text, &end, 10);
    if (errno || end == text || *end || v < s->low || v > s->high) {
        snprintf(why, size, "%s: %s is \"%s\"; it takes an integer of %ld to %ld", from, s->name, text, s->low, s->high);
        return false;
    }
    *(int *)at = (int)v;
    return true;
}

/* '-' and '_' are the same in names, as is the case in variables. */
static const setting *find(const char *name, size_t n)
{
    for (int i = 0; i < NSETTINGS; i++) {
        size_t k = 0;
        while (k < n && settings[i].name[k] && (settings[i].name[k] == name[k] || (settings[i].name[k] == '_' && name[k] == '-'))) k++;
        if (k == n && !settings[i].name[k]) return &settings[i];
    }
    return NULL;
}

static bool load_file(service_config *c, const char *path, char *why, size_t size)
{
    char line[2048], from[600];
    FILE *f = fopen(path, "r");
    bool ok = f != NULL;
    if (!f) snprintf(why, size, "cannot read %s: %s", path, strerror(errno));
    for (int number = 1; ok && fgets(line, sizeof line, f); number++) {
        char *p = line + strspn(line, " \t"), *eq, *value, *end;
        snprintf(from, sizeof from, "%s:%d", path, number);
        if (*p == '#' || *p == '\n' || !*p) continue;
        eq = strchr(p, '=');
        size_t n = eq ? (size_t)(eq - p) : 0;
        while (n && (p[n - 1] == ' ' || p[n - 1] == '\t')) n--;
        const setting *s = eq ? find(p, n) : NULL;
        if (!s) {
            snprintf(why, size, "%s: expected \"name = value\" with a name of --help", from);
            ok = false;
            break;
        }
        value = eq + 1 + strspn(eq + 1, " \t");
        for (end = value + strlen(value); end > value && strchr(" \t\r\n", end[-1]);) *--end = 0;
        ok = set(c, s, value, from, why, size);
    }
    if (f) fclose(f);
    return ok;
}

static bool load_environment(service_config *c, char *why, size_t size)
{
    for (int i = 0; i < NSETTINGS; i++) {
        char name[64] = "KILN_";
        for (int k = 0; settings[i].name[k] && k < 50; k++)
            name[5 + k] = (char)(settings[i].name[k] == '_' ? '_' : settings[i].name[k] - 32);
        const char *v = getenv(name);
        if (v && *v && !set(c, &settings[i], v, name, why, size)) return false;
    }
    return true;
}

/* pass 0 finds --config, pass 1 sets. */
static bool load_flags(service_config *c, int argc, char **argv, const char **file, int pass, char *why, size_t size)
{
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i];
        if (!strcmp(a, "--check-config")) {
            c->check = true;
            continue;
        }
        if (!strcmp(a, "--help") || !strcmp(a, "-h")) {
            c->help = true;
            continue;
        }
        if (!strcmp(a, "--version")) {
            c->version = true;
            continue;
        }
        const char *eq = strchr(a, '=');
        size_t n = eq ? (size_t)(eq - a) : strlen(a);
        bool is_file = n == 8 && !strncmp(a, "--config", 8);
        const setting *s = !strncmp(a, "--", 2) ? find(a + 2, n - 2) : NULL;
        if (!s && !is_file) {
            snprintf(why, size, "%s: no such option; see --help", a);
            return false;
        }
        const char *v = eq ? eq + 1 : s && s->kind == 'B' ? "1" : ++i < argc ? argv[i] : NULL;
        if (!v) {
            snprintf(why, size, "%s takes a value", a);
            return false;
        }
        if (is_file)
            *file = v;
        else if (pass && !set(c, s, v, a, why, size))
            return false;
    }
    return true;
}

bool service_config_load(service_config *c, int argc, char **argv, char *why, size_t size)
{
    const char *file = getenv("KILN_CONFIG");
    *c = (service_config){0};
    snprintf(why, size, "out of memory");
    for (int i = 0; i < NSETTINGS; i++)
        if (!set(c, &settings[i], settings[i].def, "default", why, size)) return false;
    return load_flags(c, argc, argv, &file, 0, why, size) && (!file || !*file || load_file(c, file, why, size)) &&
           load_environment(c, why, size) && load_flags(c, argc, argv, &file, 1, why, size);
}

void service_config_free(service_config *c)
{
    for (int i = 0; i < NSETTINGS; i++)
        if (settings[i].kind == 'S') free(*(char **)((char *)c + settings[i].at));
    *c = (service_config){0};
}

void service_config_help(void (*line)(const char *text))
{
    char text[400], name[40];
    for (int i = 0; i < NSETTINGS; i++) {
        snprintf(name, sizeof name, "%s", settings[i].name);
        for (char *p = name; *p; p++) *p = *p == '_' ? '-' : *p;
        snprintf(text, sizeof text, "  --%-14s %s%s%s%s", name, settings[i].meaning, *settings[i].def ? " [" : "", settings[i].def,
                 *settings[i].def ? "]" : "");
        line(text);
    }
}
