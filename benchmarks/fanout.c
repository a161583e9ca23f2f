/* Fan-out in C: what this kernel allows, and clients that cost next to nothing.
 *   fanout floor PORT N MS BYTES   accept N WebSocket clients, then write BYTES to each every MS milliseconds
 *   fanout load PORT PATH N WARM S [MESSAGE]   N clients that send MESSAGE once, then count for S seconds
 * `load` prints one JSON object: frames, bytes, gaps of one client between two writes (ns): p50, p99, max. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
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

static int serve(int port, int n, double ms, int size) {
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a = local(port);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (void *)&a, sizeof a) || listen(listener, 4096)) return perror("listen"), 1;
    puts("READY"), fflush(stdout);
    int *fd = calloc(n, sizeof *fd);
    const char *hello = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                        "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
    char *data = calloc(1, size), request[4096];
    for (int at = 0; at + 3 <= size;) { /* frames of at most 125 bytes of text */
        int part = size - at - 2 > 125 ? 125 : size - at - 2;
        if (size - at - 2 - part == 1) part--;
        data[at] = (char)0x81, data[at + 1] = (char)part;
        memset(data + at + 2, 'x', part), at += part + 2;
    }
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

typedef struct { int fd; uint64_t last, skip; unsigned char head[4]; int have; } Client;

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

static int ascending(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static int load(int port, const char *path, int n, double warm, double seconds, const char *message) {
    Client *c = calloc(n, sizeof *c);
    int poll = epoll_create1(0);
    unsigned char *buffer = malloc(1 << 20);
    for (int i = 0; i < n; i++) {
        char request[512], answer[2048];
        struct sockaddr_in a = local(port);
        c[i].fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(c[i].fd, (void *)&a, sizeof a)) return perror("connect"), 1;
        int size = snprintf(request, sizeof request,
                            "GET %s HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n", path);
        send(c[i].fd, request, size, 0);
        int got = 0;
        do { /* the answer, byte by byte: what follows it belongs to the stream */
            if (recv(c[i].fd, answer + got, 1, 0) <= 0 || got == 2000) return fprintf(stderr, "no upgrade\n"), 1;
            got++;
        } while (got < 4 || memcmp(answer + got - 4, "\r\n\r\n", 4));
        if (message) {
            unsigned char frame[256] = {0x81, 0x80 | (unsigned char)strlen(message)};
            memcpy(frame + 6, message, strlen(message));
            send(c[i].fd, frame, 6 + strlen(message), 0);
        }
        fcntl(c[i].fd, F_SETFL, O_NONBLOCK);
        struct epoll_event e = {.events = EPOLLIN, .data.u32 = i};
        epoll_ctl(poll, EPOLL_CTL_ADD, c[i].fd, &e);
    }
    uint64_t begin = now() + (uint64_t)(warm * 1e9), end = begin + (uint64_t)(seconds * 1e9), total = 0, bytes = 0;
    uint64_t capacity = 8u << 20, samples = 0, *gaps = malloc(capacity * sizeof *gaps), lost = 0, started = 0;
    struct epoll_event events[1024];
    for (uint64_t t; (t = now()) < end;) {
        if (t >= begin && !started) started = 1, puts("START"), fflush(stdout);
        int ready = epoll_wait(poll, events, 1024, 20);
        for (int k = 0; k < ready; k++) {
            Client *x = &c[events[k].data.u32];
            ssize_t size = recv(x->fd, buffer, 1 << 20, 0);
            if (size == 0 || (size < 0 && errno != EAGAIN)) { lost++, close(x->fd); continue; }
            uint64_t at = now(), seen = size > 0 ? frames(x, buffer, size) : 0;
            if (at >= begin && seen) {
                total += seen, bytes += size;
                if (x->last && samples < capacity) gaps[samples++] = at - x->last;
            }
            if (seen) x->last = at;
        }
    }
    puts("END");
    qsort(gaps, samples, sizeof *gaps, ascending);
    printf("{\"frames\":%lu,\"bytes\":%lu,\"lost\":%lu,\"gap_p50\":%lu,\"gap_p99\":%lu,\"gap_max\":%lu}\n", total, bytes, lost,
           samples ? gaps[samples / 2] : 0, samples ? gaps[samples * 99 / 100] : 0, samples ? gaps[samples - 1] : 0);
    return 0;
}

int main(int count, char **argument) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit), limit.rlim_cur = limit.rlim_max, setrlimit(RLIMIT_NOFILE, &limit);
    if (count == 6 && !strcmp(argument[1], "floor"))
        return serve(atoi(argument[2]), atoi(argument[3]), atof(argument[4]), atoi(argument[5]));
    if (count >= 7 && !strcmp(argument[1], "load"))
        return load(atoi(argument[2]), argument[3], atoi(argument[4]), atof(argument[5]), atof(argument[6]),
                    count > 7 ? argument[7] : NULL);
    return fprintf(stderr, "usage: see the first lines of fanout.c\n"), 2;
}
