/* An open-loop HTTP client: requests leave by a clock, whether or not answers have come, and a delay counts from when the request was due.
 * usage: pace PORT CONNECTIONS RATE SECONDS METHOD PATH [BODY-FILE]. Prints "rate p50 p90 p99 p99.9 max", microseconds; status 1: an answer
 * was not 200, or did not come within ten seconds of the end. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { ROOM = 1 << 20, MAX_CONNECTIONS = 1024, STEPS = 16, BUCKETS = 64 * STEPS };
typedef struct line {
    int fd;
    long long due; /* of the request under way, 0: none */
    size_t have, want; /* bytes of the answer; want 0: its head is not complete */
} line;
static line lines[MAX_CONNECTIONS];
static int idle[MAX_CONNECTIONS], nidle, set, wrong;
static char request[ROOM], answer[ROOM];
static size_t nrequest;
static unsigned long long counts[BUCKETS], answered;
static long long worst;

static long long now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* Sixteen buckets an octave of microseconds. */
static void count(long long ns)
{
    double us = (double)ns / 1e3;
    int i = 0;
    while (us >= 2) us /= 2, i += STEPS;
    i += us < 1 ? 0 : (int)((us - 1) * STEPS);
    counts[i < BUCKETS ? i : BUCKETS - 1]++;
    answered++;
    if (ns > worst) worst = ns;
}

static double quantile(double q)
{
    unsigned long long seen = 0;
    for (int i = 0; i < BUCKETS; i++) {
        seen += counts[i];
        if ((double)seen >= q * (double)answered) return (double)(1LL << i / STEPS) * (1 + (i % STEPS + 1.0) / STEPS);
    }
    return 0;
}

static void die(const char *what)
{
    perror(what);
    exit(2);
}

static void begin(int i, long long due)
{
    lines[i].due = due;
    lines[i].have = lines[i].want = 0;
    if (send(lines[i].fd, request, nrequest, MSG_NOSIGNAL) != (ssize_t)nrequest) die("send");
}

/* The head of an answer is taken to come in one piece, as it does from a server that writes it at once. */
static void take(int i)
{
    line *l = &lines[i];
    ssize_t n = recv(l->fd, answer, ROOM - 1, 0);
    if (n <= 0 && errno == EAGAIN) return;
    if (n <= 0) die("recv");
    answer[n] = 0;
    if (!l->want) {
        const char *end = strstr(answer, "\r\n\r\n"), *length = strcasestr(answer, "Content-Length:");
        if (!end || !length) {
            fprintf(stderr, "an answer without a length: %.80s\n", answer);
            exit(2);
        }
        wrong |= strncmp(answer, "HTTP/1.1 200", 12) != 0;
        l->want = (size_t)(end + 4 - answer) + (size_t)atol(length + 15);
    }
    l->have += (size_t)n;
    if (l->have < l->want) return;
    count(now_ns() - l->due);
    l->due = 0;
    idle[nidle++] = i;
}

static void connect_all(int port, int n)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    set = epoll_create1(0);
    for (int i = 0; i < n; i++) {
        int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
        if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to)) die("connect");
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        fcntl(fd, F_SETFL, O_NONBLOCK);
        struct epoll_event e = {.events = EPOLLIN, .data.u32 = (unsigned)i};
        epoll_ctl(set, EPOLL_CTL_ADD, fd, &e);
        lines[i].fd = fd;
        idle[nidle++] = i;
    }
}

static void make_request(const char *method, const char *path, const char *file)
{
    static char body[ROOM / 2];
    size_t n = 0;
    FILE *f = file ? fopen(file, "rb") : NULL;
    if (file && !f) die(file);
    if (f) n = fread(body, 1, sizeof body, f);
    if (f) fclose(f);
    int k = snprintf(request, ROOM / 2, "%s %s HTTP/1.1\r\nHost: localhost\r\n", method, path);
    if (file) k += snprintf(request + k, 200, "Content-Type: application/json\r\nContent-Length: %zu\r\n", n);
    k += snprintf(request + k, 3, "\r\n");
    memcpy(request + k, body, n);
    nrequest = (size_t)k + n;
}

int main(int argc, char **argv)
{
    int n = argc > 6 ? atoi(argv[2]) : 0;
    double rate = argc > 6 ? atof(argv[3]) : 0, seconds = argc > 6 ? atof(argv[4]) : 0;
    if (n < 1 || n > MAX_CONNECTIONS || rate <= 0) return fprintf(stderr, "usage: pace PORT CONNECTIONS RATE SECONDS METHOD PATH [BODY-FILE]\n"), 2;
    make_request(argv[5], argv[6], argv[7]);
    connect_all(atoi(argv[1]), n);
    long long total = (long long)(rate * seconds), sent = 0, began = now_ns();
    while (answered < (unsigned long long)total) {
        long long now = now_ns(), due = began + (long long)((double)sent * 1e9 / rate);
        if (now > began + (long long)((seconds + 10) * 1e9)) break;
        for (; sent < total && nidle && due <= now; due = began + (long long)((double)++sent * 1e9 / rate)) begin(idle[--nidle], due);
        long long left = sent < total && nidle ? due - now : 1000000000;
        struct timespec wait = {left > 0 ? left / 1000000000 : 0, left > 0 ? left % 1000000000 : 0};
        struct epoll_event e[64];
        int k = epoll_pwait2(set, e, 64, &wait, NULL);
        for (int i = 0; i < k; i++) take((int)e[i].data.u32);
    }
    double took = (double)(now_ns() - began) / 1e9;
    printf("%.0f %.0f %.0f %.0f %.0f %.0f\n", (double)answered / took, quantile(0.5), quantile(0.9), quantile(0.99), quantile(0.999),
           (double)worst / 1e3);
    return wrong || answered < (unsigned long long)total;
}
