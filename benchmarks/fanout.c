/* Fan-out in C: what this kernel allows, and clients that cost next to nothing.
 *   fanout floor PORT N MS BYTES FRAMES   accept N WebSocket clients, then write FRAMES frames, BYTES in all, to each
 *                                         of them every MS milliseconds, in one write
 *   fanout load PORT PATH N WARM S MS FRAMES [MESSAGE]   N clients that send MESSAGE once, then count for S seconds;
 *                                         a tick is FRAMES frames, one every MS milliseconds
 *   fanout hold PORT PATH N S [MESSAGE]   N clients that connect within S seconds and stay; for each line on stdin all
 *                                         leave and connect again; they leave for good when stdin ends
 * `load` prints one JSON object: frames, bytes, lost connections, and the lag of the ticks (ns): p50, p99, max. Lag is
 * the time from when a tick was due to when a client had it. The grid of due times is the tightest one through what the
 * first client got, which is served first; each client counts its ticks, so one left out shows as a lag of MS more. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + t.tv_nsec;
}

static struct sockaddr_in local(int port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return a;
}

static int serve(int port, int n, double ms, int size, int frames) {
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a = local(port);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (void *)&a, sizeof a) || listen(listener, 4096)) return perror("listen"), 1;
    puts("READY"), fflush(stdout);
    int *fd = calloc(n, sizeof *fd), part = size / frames - 4;
    const char *hello = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                        "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
    char *data = calloc(1, size), request[4096], *at = data;
    for (int i = 0; i < frames; i++, at += part + 4) { /* frames of 16 bit length */
        at[0] = (char)0x81, at[1] = 126, at[2] = (char)(part >> 8), at[3] = (char)part;
        memset(at + 4, 'x', part);
    }
    size = at - data;
    for (int i = 0; i < n; i++) {
        fd[i] = accept(listener, 0, 0);
        if (recv(fd[i], request, sizeof request, 0) <= 0) return 1;
        send(fd[i], hello, strlen(hello), 0);
        setsockopt(fd[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    }
    for (uint64_t next = now();; ) {
        for (int i = 0; i < n; i++)
            if (send(fd[i], data, size, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno != EAGAIN) return 0;
        next += (uint64_t)(ms * 1e6);
        struct timespec t = {next / 1000000000ull, next % 1000000000ull};
        if (now() < next) clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, 0);
        else next = now();
    }
}

typedef struct {
    int fd, have;
    uint64_t skip, frames;
    int64_t tick; /* the next one's number on the grid; -1 before the first */
    unsigned char head[4];
} Client;

#define AT_ONCE 64 /* connections whose answer is not read yet: a busy server is woken once for many; its backlog is 100 */

/* Connects and asks for the upgrade. */
static int ask(Client *c, int port, const char *path) {
    char request[512];
    struct sockaddr_in a = local(port);
    *c = (Client){.fd = socket(AF_INET, SOCK_STREAM, 0), .tick = -1};
    if (connect(c->fd, (void *)&a, sizeof a)) return perror("connect"), 1;
    int size = snprintf(request, sizeof request,
                        "GET %s HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n", path);
    return send(c->fd, request, size, 0) != size;
}

/* Reads the answer and, if there is a message, sends it. */
static int join(Client *c, const char *message, int poll, int number) {
    char answer[2048];
    int got = 0;
    do { /* byte by byte: what follows it belongs to the stream */
        if (recv(c->fd, answer + got, 1, 0) <= 0 || got == 2000) return fprintf(stderr, "no upgrade\n"), 1;
        got++;
    } while (got < 4 || memcmp(answer + got - 4, "\r\n\r\n", 4));
    if (message) {
        unsigned char frame[256] = {0x81, 0x80 | (unsigned char)strlen(message)};
        memcpy(frame + 6, message, strlen(message));
        send(c->fd, frame, 6 + strlen(message), 0);
    }
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    struct epoll_event e = {.events = EPOLLIN, .data.u32 = number};
    return epoll_ctl(poll, EPOLL_CTL_ADD, c->fd, &e);
}

/* Counts the frames in a piece of the stream: server frames, unmasked, of 7 or 16 bit length. */
static uint64_t frames(Client *c, unsigned char *p, ssize_t size) {
    uint64_t count = 0;
    while (size > 0) {
        if (c->skip) {
            uint64_t step = c->skip < (uint64_t)size ? c->skip : (uint64_t)size;
            c->skip -= step, p += step, size -= step;
            continue;
        }
        c->head[c->have++] = *p++, size--;
        int length = c->have > 1 ? c->head[1] & 127 : -1;
        if (length == 126 && c->have == 4) c->skip = c->head[2] << 8 | c->head[3], c->have = 0, count++;
        else if (length >= 0 && length < 126) c->skip = length, c->have = 0, count++;
    }
    return count;
}

/* Reads what came while others still connect, so that nobody is sent to a client that does not read; lost connections. */
static int keep_up(Client *c, int poll, unsigned char *buffer) {
    struct epoll_event events[1024];
    int ready = epoll_wait(poll, events, 1024, 0), lost = 0;
    for (int k = 0; k < ready; k++) {
        Client *x = &c[events[k].data.u32];
        ssize_t size = recv(x->fd, buffer, 1 << 20, 0);
        if (size == 0 || (size < 0 && errno != EAGAIN)) lost++, close(x->fd);
        else if (size > 0) frames(x, buffer, size);
    }
    return lost;
}

static int ascending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int load(int port, const char *path, int n, double warm, double seconds, double ms, int per_tick,
                const char *message) {
    Client *c = calloc(n, sizeof *c);
    int poll = epoll_create1(0);
    unsigned char *buffer = malloc(1 << 20);
    uint64_t capacity = 16u << 20, samples = 0, total = 0, bytes = 0, lost = 0, started = 0;
    for (int i = 0, asked = 0; i < n; i++) {
        for (; asked < n && asked < i + AT_ONCE; asked++)
            if (ask(c + asked, port, path)) return 1;
        if (join(c + i, message, poll, i)) return 1;
        lost += keep_up(c, poll, buffer);
    }
    int64_t begin = now() + (uint64_t)(warm * 1e9), end = begin + (int64_t)(seconds * 1e9), period = (int64_t)(ms * 1e6);
    int64_t *lags = malloc(capacity * sizeof *lags), earliest = INT64_MAX, grid = 0;
    struct epoll_event events[1024];
    for (int64_t t; (t = now()) < end;) {
        if (t >= begin && !started) started = 1, puts("START"), fflush(stdout);
        int ready = epoll_wait(poll, events, 1024, 20);
        for (int k = 0; k < ready; k++) {
            Client *x = &c[events[k].data.u32];
            ssize_t size = recv(x->fd, buffer, 1 << 20, 0);
            if (size == 0 || (size < 0 && errno != EAGAIN)) { lost++, close(x->fd); continue; }
            int64_t at = now();
            uint64_t seen = size > 0 ? frames(x, buffer, size) : 0;
            if (x == c && seen && at < begin && at > begin - 20 * period) /* the grid, as good as it is known so far */
                if (!grid || (at - grid) % period > period * 7 / 8) grid = at;
            if (at < begin || !seen) continue;
            total += seen, bytes += size;
            for (x->frames += seen; x->frames >= (uint64_t)per_tick; x->frames -= per_tick) {
                if (x->tick < 0) x->tick = (at - grid + period / 8) / period;
                int64_t lag = at - grid - x->tick++ * period;
                if (x == c && lag < earliest) earliest = lag;
                if (samples < capacity) lags[samples++] = lag;
            }
        }
    }
    puts("END");
    qsort(lags, samples, sizeof *lags, ascending);
    if (!samples) lags[0] = earliest = 0, samples = 1;
    printf("{\"frames\":%lu,\"bytes\":%lu,\"lost\":%lu,\"lag_p50\":%ld,\"lag_p99\":%ld,\"lag_max\":%ld}\n", total, bytes,
           lost, lags[samples / 2] - earliest, lags[samples * 99 / 100] - earliest, lags[samples - 1] - earliest);
    return 0;
}

/* Takes whatever came; how many connections ended. */
static int drain(Client *c, int poll, unsigned char *buffer, int wait_ms) {
    struct epoll_event events[1024];
    int ready = epoll_wait(poll, events, 1024, wait_ms), ended = 0;
    for (int k = 0; k < ready; k++) {
        Client *x = &c[events[k].data.u32];
        ssize_t size = recv(x->fd, buffer, 1 << 20, 0);
        if (size == 0 || (size < 0 && errno != EAGAIN)) ended++, close(x->fd), x->fd = -1;
    }
    return ended;
}

static int hold(int port, const char *path, int n, double seconds, const char *message) {
    Client *c = calloc(n, sizeof *c);
    int poll_fd = epoll_create1(0);
    unsigned char *buffer = malloc(1 << 20);
    struct pollfd input = {.fd = 0, .events = POLLIN};
    for (;;) {
        uint64_t began = now(), slowest = 0;
        int lost = 0;
        for (int i = 0; i < n; i++) {
            uint64_t due = began + (uint64_t)(seconds * 1e9 * i / n), at;
            do lost += drain(c, poll_fd, buffer, 0);
            while (now() < due);
            at = now();
            if (ask(c + i, port, path) || join(c + i, message, poll_fd, i)) return 1;
            if (now() - at > slowest) slowest = now() - at;
        }
        printf("{\"connected\":%d,\"lost\":%d,\"seconds\":%.3f,\"slowest\":%lu}\n", n, lost, (now() - began) / 1e9, slowest);
        fflush(stdout);
        while (!poll(&input, 1, 0)) drain(c, poll_fd, buffer, 20);
        char line[64];
        ssize_t got = read(0, line, sizeof line);
        for (int i = 0; i < n; i++)
            if (c[i].fd >= 0) close(c[i].fd);
        if (got <= 0) return 0;
    }
}

int main(int count, char **argument) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit), limit.rlim_cur = limit.rlim_max, setrlimit(RLIMIT_NOFILE, &limit);
    if (count == 7 && !strcmp(argument[1], "floor"))
        return serve(atoi(argument[2]), atoi(argument[3]), atof(argument[4]), atoi(argument[5]), atoi(argument[6]));
    if (count >= 9 && !strcmp(argument[1], "load"))
        return load(atoi(argument[2]), argument[3], atoi(argument[4]), atof(argument[5]), atof(argument[6]),
                    atof(argument[7]), atoi(argument[8]), count > 9 ? argument[9] : NULL);
    if (count >= 6 && !strcmp(argument[1], "hold"))
        return hold(atoi(argument[2]), argument[3], atoi(argument[4]), atof(argument[5]), count > 6 ? argument[6] : NULL);
    return fprintf(stderr, "usage: see the first lines of fanout.c\n"), 2;
}
