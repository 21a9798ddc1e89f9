/* Fails every n-th call of a kind on files beneath a folder, once a file says so. FAULTS is "CALL ERROR N FOLDER SWITCH": the error
   is a number, or 0 for a call that does half of its work. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char call[16], folder[PATH_MAX], switched[PATH_MAX];
static int error;
static unsigned every;
static atomic_uint calls;

__attribute__((constructor)) static void begin(void) {
    const char *told = getenv("FAULTS");
    if (!told || sscanf(told, "%15s %d %u %4095s %4095s", call, &error, &every, folder, switched) != 5) every = 0;
}

static int fails(const char *name, const char *path) {
    if (!every || strcmp(name, call) || !path || strncmp(path, folder, strlen(folder))) return 0;
    int kept = errno;
    int on = access(switched, F_OK) == 0;
    errno = kept;
    return on && atomic_fetch_add(&calls, 1) % every == every - 1;
}

static int fails_of(const char *name, int file) {
    char link[32], path[PATH_MAX] = "";
    if (!every || strcmp(name, call)) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    int kept = errno;
    ssize_t length = readlink(link, path, sizeof path - 1);
    errno = kept;
    return length > 0 && fails(name, path);
}

#define NEXT(type, name) static type (*next)() ; if (!next) next = (type (*)())dlsym(RTLD_NEXT, name)
#define FAIL do { errno = error; return -1; } while (0)

ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t at) {
    NEXT(ssize_t, "pwrite64");
    if (fails_of("write", file)) {
        if (error) FAIL;
        if (count > 1) count /= 2;
    }
    return next(file, bytes, count, at);
}
ssize_t write(int file, const void *bytes, size_t count) {
    NEXT(ssize_t, "write");
    if (fails_of("write", file)) {
        if (error) FAIL;
        if (count > 1) count /= 2;
    }
    return next(file, bytes, count);
}
int fsync(int file) { NEXT(int, "fsync"); if (fails_of("sync", file)) FAIL; return next(file); }
int fdatasync(int file) { NEXT(int, "fdatasync"); if (fails_of("sync", file)) FAIL; return next(file); }
int ftruncate64(int file, off64_t size) { NEXT(int, "ftruncate64"); if (fails_of("truncate", file)) FAIL; return next(file, size); }
int rename(const char *from, const char *to) { NEXT(int, "rename"); if (fails("rename", to)) FAIL; return next(from, to); }
int unlink(const char *path) { NEXT(int, "unlink"); if (fails("unlink", path)) FAIL; return next(path); }
int open64(const char *path, int flags, ...) {
    NEXT(int, "open64");
    va_list rest;
    va_start(rest, flags);
    mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    if ((flags & O_CREAT) && fails("create", path)) FAIL;
    return next(path, flags, mode);
}
