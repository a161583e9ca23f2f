/* Preloaded before a program whose disk is tried: calls to the system that fail, or are the last ones.
 *
 * Only calls that change files below a folder count, each that asks for it; what other processes see of the log
 * (`-shm`) is in memory and does not. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static char watched[PATH_MAX];
static long first, last, seen;
static int code;

/* Calls about `folder` from number `from` to `to` fail with `error`. With 0 the process ends there instead, as by
 * `kill -9`, and what it was to write is written by half. */
void faults_arm(const char *folder, long from, long to, int error)
{
    snprintf(watched, sizeof watched, "%s", folder);
    first = from, last = to, code = error, seen = 0;
}

long faults_seen(void) { return seen; }

static int is_hit(const char *path)
{
    if (!watched[0] || !strstr(path, watched) || strstr(path, "-shm"))
        return 0;
    long number = __sync_add_and_fetch(&seen, 1);
    return number >= first && number <= last;
}

static int is_hit_by(int file)
{
    char link[64], path[PATH_MAX];
    if (!watched[0])
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length < 0 ? 0 : length] = 0;
    return is_hit(path);
}

static int failed(void)
{
    if (!code)
        _exit(99);
    errno = code;
    return -1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define OPENER(name) \
    int name(const char *path, int flags, ...) \
    { \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = va_arg(rest, mode_t); \
        va_end(rest); \
        if ((flags & (O_CREAT | O_WRONLY | O_RDWR)) && is_hit(path)) \
            return failed(); \
        return REAL(name)(path, flags, mode); \
    }
OPENER(open)
OPENER(open64)

#define WRITER(name, more, given) \
    ssize_t name(int file, const void *data, size_t size more) \
    { \
        if (is_hit_by(file)) { \
            if (!code) { \
                size /= 2; \
                REAL(name) given; \
            } \
            return failed(); \
        } \
        return REAL(name) given; \
    }
#define AT(type) , type at
WRITER(write, , (file, data, size))
WRITER(pwrite, AT(off_t), (file, data, size, at))
WRITER(pwrite64, AT(off64_t), (file, data, size, at))

int fsync(int file) { return is_hit_by(file) ? failed() : REAL(fsync)(file); }
int fdatasync(int file) { return is_hit_by(file) ? failed() : REAL(fdatasync)(file); }
int ftruncate(int file, off_t size) { return is_hit_by(file) ? failed() : REAL(ftruncate)(file, size); }
int ftruncate64(int file, off64_t size) { return is_hit_by(file) ? failed() : REAL(ftruncate64)(file, size); }
int rename(const char *from, const char *to) { return is_hit(to) ? failed() : REAL(rename)(from, to); }
int renameat(int a, const char *from, int b, const char *to)
{
    return is_hit(to) ? failed() : REAL(renameat)(a, from, b, to);
}
int unlink(const char *path) { return is_hit(path) ? failed() : REAL(unlink)(path); }
int mkdir(const char *path, mode_t mode) { return is_hit(path) ? failed() : REAL(mkdir)(path, mode); }
