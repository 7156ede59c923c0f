/* HTTP through libcurl: one call, with the headers that the verbs show. */
#include "api/cli/cli.h"
#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static size_t take(char *p, size_t size, size_t count, void *user)
{
    struct http_answer *a = user;
    size_t n = size * count;
    char *grown = realloc(a->body, a->n + n + 1);
    if (!grown) return 0;
    a->body = grown;
    memcpy(a->body + a->n, p, n);
    a->n += n;
    a->body[a->n] = 0;
    return n;
}

static void keep(const char *line, size_t n, const char *name, char *out, size_t cap)
{
    size_t k = strlen(name);
    if (n <= k || strncasecmp(line, name, k)) return;
    while (k < n && line[k] == ' ') k++;
    snprintf(out, cap, "%.*s", (int)(n - k), line + k);
    out[strcspn(out, "\r\n")] = 0;
}

static size_t header(char *p, size_t size, size_t count, void *user)
{
    struct http_answer *a = user;
    keep(p, size * count, "content-type:", a->type, sizeof a->type);
    keep(p, size * count, "cache-status:", a->cache, sizeof a->cache);
    keep(p, size * count, "server-timing:", a->timing, sizeof a->timing);
    return size * count;
}

/* A sign of life on stderr once a call takes longer than a second. */
static int progress(void *user, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    (void)a, (void)b, (void)c, (void)d;
    CURL *h = user;
    double seconds = 0;
    static int shown;
    curl_easy_getinfo(h, CURLINFO_TOTAL_TIME, &seconds);
    if ((int)seconds > shown) fprintf(stderr, "kiln: waiting for the service, %d s\n", shown = (int)seconds);
    return 0;
}

bool http_call(const struct cli *c, const char *path, const char *accept, const char *body, struct http_answer *out)
{
    return http_send(c, path, accept, "application/json", body, body ? strlen(body) : 0, out);
}

bool http_send(const struct cli *c, const char *path, const char *accept, const char *type, const void *body, size_t n, struct http_answer *out)
{
    static CURL *kept; /* with its connection: a model's folder takes a hundred calls */
    *out = (struct http_answer){0};
    if (kept) curl_easy_reset(kept);
    else kept = curl_easy_init();
    CURL *h = kept;
    if (!h) return cli_fail(SOFTWARE, "libcurl cannot start") < 0;
    char url[1024], line[160], why[CURL_ERROR_SIZE] = "";
    struct curl_slist *headers = NULL;
    bool local = !strncmp(c->url, "unix:", 5);
    const char *key = getenv("KILN_KEY");
    snprintf(url, sizeof url, "%s%s", local ? "http://localhost" : c->url, path);
    if (local) curl_easy_setopt(h, CURLOPT_UNIX_SOCKET_PATH, c->url + 5);
    if (key && *key) {
        snprintf(line, sizeof line, "Authorization: Bearer %s", key);
        headers = curl_slist_append(headers, line);
    }
    if (accept) {
        snprintf(line, sizeof line, "Accept: %s", accept);
        headers = curl_slist_append(headers, line);
    }
    if (c->wait) {
        snprintf(line, sizeof line, "Prefer: wait=%d", c->wait);
        headers = curl_slist_append(headers, line);
    }
    if (body) {
        snprintf(line, sizeof line, "Content-Type: %s", type);
        headers = curl_slist_append(headers, line);
        curl_easy_setopt(h, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)n);
        curl_easy_setopt(h, CURLOPT_POSTFIELDS, body);
    }
    curl_easy_setopt(h, CURLOPT_URL, url);
    curl_easy_setopt(h, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(h, CURLOPT_WRITEDATA, out);
    curl_easy_setopt(h, CURLOPT_HEADERFUNCTION, header);
    curl_easy_setopt(h, CURLOPT_HEADERDATA, out);
    curl_easy_setopt(h, CURLOPT_XFERINFOFUNCTION, progress);
    curl_easy_setopt(h, CURLOPT_XFERINFODATA, h);
    curl_easy_setopt(h, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT, 5L);
    curl_easy_setopt(h, CURLOPT_TIMEOUT, 180L);
    curl_easy_setopt(h, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(h, CURLOPT_ERRORBUFFER, why);
    CURLcode rc = curl_easy_perform(h);
    curl_easy_getinfo(h, CURLINFO_RESPONSE_CODE, &out->status);
    curl_slist_free_all(headers);
    if (rc == CURLE_OK) return true;
    free(out->body);
    out->body = NULL;
    cli_fail(UNAVAILABLE, "no answer from %s: %s", c->url, *why ? why : curl_easy_strerror(rc));
    fprintf(stderr, "      start a service with `make run` or kilnd, or name another with --url or KILN_URL\n");
    return false;
}

int http_problem(const struct http_answer *a)
{
    cJSON *p = a->body ? cJSON_ParseWithLength(a->body, a->n) : NULL;
    const char *title = json_text(p, "title"), *detail = json_text(p, "detail"), *pointer = json_text(p, "pointer"), *hint = json_text(p, "hint");
    fprintf(stderr, "kiln: %ld %s\n", a->status, *title ? title : "(no explanation)");
    if (*detail) fprintf(stderr, "      %s%s%s\n", pointer, *pointer ? ": " : "", detail);
    if (*hint) fprintf(stderr, "      %s\n", hint);
    cJSON_Delete(p);
    return a->status >= 500 ? UNAVAILABLE : DATA;
}

cJSON *cli_kernel(struct cli *c, int *status)
{
    struct http_answer a;
    char path[128] = "/v1/compile";
    bool key = c->nargs && cli_is_key(c->args[0]);
    char *body = key ? NULL : cli_request(c, status);
    if (!key && !body) return NULL;
    if (key) snprintf(path, sizeof path, "/v1/kernels/%.80s", c->args[0]);
    bool reached = http_call(c, path, "application/json", body, &a);
    free(body);
    *status = !reached ? UNAVAILABLE : a.status != 200 ? http_problem(&a) : OK;
    cJSON *o = *status == OK ? cJSON_ParseWithLength(a.body, a.n) : NULL;
    if (*status == OK && !o) *status = cli_fail(SOFTWARE, "the service answered with something that is not JSON");
    if (reached) free(a.body);
    return o;
}
