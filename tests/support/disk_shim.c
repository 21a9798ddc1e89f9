// Stands between a process and the files beneath a folder: records each change to them, or has one fail.
//
// DISK_ROOT names the folder. DISK_TRACE names a file that gets a record of each change that took effect: a kind, three
// numbers, two strings. DISK_FAIL is "KIND EVERY ERRNO" with the kind of such a record: of these changes every so many
// fails with ERRNO, or does half of a write where that is 0. DISK_KILL is "KIND COUNT PART WORDS": before the change of
// that kind that is so many of those whose path has PART, and whose bytes have WORDS where any are given, the process
// kills itself. Both begin to count when the file DISK_ARMED is there.
// Calls that bypass libc are not seen.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))real(#name))
enum { FAIL, HALF, PASS };

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static int trace = -1, ready, armed;
static char fail_kind;
static int fail_errno;
static unsigned every, counted;
static char kill_kind, kill_part[64], kill_words[64];
static unsigned kill_at, passed;
static char root[PATH_MAX];

static void *real(const char *name) { return dlsym(RTLD_NEXT, name); }

static void begin(void) {
    if (ready) return;
    ready = 1;
    const char *at = getenv("DISK_ROOT"), *to = getenv("DISK_TRACE"), *fail = getenv("DISK_FAIL");
    const char *last = getenv("DISK_KILL");
    if (at) snprintf(root, sizeof root, "%s", at);
    if (to) trace = REAL(open64)(to, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (fail && sscanf(fail, "%c %u %d", &fail_kind, &every, &fail_errno) != 3) abort();
    if (last && sscanf(last, "%c %u %63s %63[^\n]", &kill_kind, &kill_at, kill_part, kill_words) < 3) abort();
}

static int beneath(const char *path) {
    size_t length = strlen(root);
    return length && !strncmp(path, root, length) && (path[length] == '/' || !path[length]);
}

// The path of a descriptor, where it is one of ours; removed files have none.
static int ours(int fd, char *path) {
    char link[64];
    begin();
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return beneath(path);
}

static uint64_t inode(int fd, const char *path) {
    struct stat found;
    return (path ? lstat(path, &found) : fstat(fd, &found)) ? 0 : found.st_ino;
}

static void record(char kind, uint64_t node, uint64_t at, const char *name, const void *bytes, uint64_t length) {
    if (trace < 0) return;
    uint64_t numbers[4] = {node, at, strlen(name), length};
    struct iovec parts[4] = {{&kind, 1}, {numbers, sizeof numbers}, {(void *)name, numbers[2]}, {(void *)bytes, length}};
    size_t total = 1 + sizeof numbers + numbers[2] + length;
    if (REAL(writev)(trace, parts, 4) != (ssize_t)total) abort();
}

// Fate of the next change, to `path`, with so many bytes.
static int fate(char kind, const char *path, const void *bytes, size_t length) {
    if (kind != fail_kind && kind != kill_kind) return PASS;
    const char *arm = getenv("DISK_ARMED");
    if (!armed && arm && access(arm, F_OK)) return PASS;
    armed = 1;
    size_t words = strlen(kill_words);
    if (kind == kill_kind && strstr(path, kill_part) && (!words || memmem(bytes, length, kill_words, words)))
        if (++passed == kill_at) kill(getpid(), SIGKILL), pause();
    if (kind != fail_kind || ++counted % every) return PASS;
    return fail_errno ? FAIL : HALF;
}

static ssize_t put(int fd, const void *bytes, size_t length, int64_t at) {
    char path[PATH_MAX];
    int positioned = at >= 0;
    if (!ours(fd, path))
        return positioned ? REAL(pwrite64)(fd, bytes, length, at) : REAL(write)(fd, bytes, length);
    pthread_mutex_lock(&turn);
    int what = fate('w', path, bytes, length);
    if (!positioned) at = fcntl(fd, F_GETFL) & O_APPEND ? lseek64(fd, 0, SEEK_END) : lseek64(fd, 0, SEEK_CUR);
    size_t part = what == FAIL ? 0 : what == HALF ? (length + 1) / 2 : length;
    ssize_t done = 0;
    if (part) done = positioned ? REAL(pwrite64)(fd, bytes, part, at) : REAL(write)(fd, bytes, part);
    int failure = errno;
    if (done > 0) record('w', inode(fd, NULL), at, path, bytes, done);
    pthread_mutex_unlock(&turn);
    errno = failure;
    if (what != FAIL) return done;
    errno = fail_errno;
    return -1;
}

ssize_t write(int fd, const void *bytes, size_t length) { return put(fd, bytes, length, -1); }
ssize_t pwrite(int fd, const void *bytes, size_t length, off_t at) { return put(fd, bytes, length, at); }
ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t at) { return put(fd, bytes, length, at); }

static int change(int fd, uint64_t at, char kind, int (*act)(int, uint64_t)) {
    char path[PATH_MAX];
    if (!ours(fd, path)) return act(fd, at);
    pthread_mutex_lock(&turn);
    int what = fate(kind, path, "", 0), done = 0, failure = 0;
    if (what != FAIL) {
        done = act(fd, at);
        failure = errno;
        if (!done) record(kind, inode(fd, NULL), at, path, "", 0);
    }
    pthread_mutex_unlock(&turn);
    errno = what == FAIL ? fail_errno : failure;
    return what == FAIL ? -1 : done;
}

static int cut(int fd, uint64_t size) { return REAL(ftruncate64)(fd, size); }
static int sync_data(int fd, uint64_t unused) { (void)unused; return REAL(fdatasync)(fd); }
static int sync_all(int fd, uint64_t unused) { (void)unused; return REAL(fsync)(fd); }
int ftruncate(int fd, off_t size) { return change(fd, size, 't', cut); }
int ftruncate64(int fd, off64_t size) { return change(fd, size, 't', cut); }
int fdatasync(int fd) { return change(fd, 0, 's', sync_data); }
int fsync(int fd) { return change(fd, 0, 's', sync_all); }

static int named(const char *from, const char *to, char kind, int (*act)(const char *, const char *)) {
    begin();
    if (!beneath(from)) return act(from, to);
    pthread_mutex_lock(&turn);
    // It is made in memory or not at all.
    int what = fate(kind, from, "", 0), done = 0, failure = 0;
    if (what != FAIL) {
        uint64_t node = inode(0, from);
        done = act(from, to);
        failure = errno;
        if (!done) record(kind, node ? node : inode(0, from), 0, from, to, strlen(to));
    }
    pthread_mutex_unlock(&turn);
    errno = what == FAIL ? fail_errno : failure;
    return what == FAIL ? -1 : done;
}

static __thread mode_t folder_mode;
static int move(const char *from, const char *to) { return REAL(rename)(from, to); }
static int drop(const char *path, const char *unused) { (void)unused; return REAL(unlink)(path); }
static int make(const char *path, const char *unused) { (void)unused; return REAL(mkdir)(path, folder_mode); }
int rename(const char *from, const char *to) { return named(from, to, 'r', move); }
int unlink(const char *path) { return named(path, "", 'u', drop); }
int mkdir(const char *path, mode_t mode) {
    folder_mode = mode;
    return named(path, "", 'd', make);
}

static int open_any(const char *path, int flags, mode_t mode) {
    begin();
    if (!(flags & (O_CREAT | O_TRUNC)) || !beneath(path)) return REAL(open64)(path, flags, mode);
    pthread_mutex_lock(&turn);
    int is_new = access(path, F_OK) != 0;
    int what = is_new || flags & O_TRUNC ? fate('c', path, "", 0) : PASS;
    int fd = what != FAIL ? REAL(open64)(path, flags, mode) : -1, failure = errno;
    if (fd >= 0 && is_new) record('c', inode(fd, NULL), 0, path, "", 0);
    else if (fd >= 0 && flags & O_TRUNC) record('t', inode(fd, NULL), 0, path, "", 0);
    pthread_mutex_unlock(&turn);
    errno = what == FAIL ? fail_errno : failure;
    return what == FAIL ? -1 : fd;
}

int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return open_any(path, flags, mode);
}
