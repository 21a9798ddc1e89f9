// Stands between a process and the system's clock: its date is off by the seconds in the file CLOCK_OFFSET names, eight
// bytes that may change while it runs. What counts durations stays as it is. Calls that bypass libc are not seen.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

static int (*system_clock)(clockid_t, struct timespec *);
static const volatile int64_t *offset;

// Mapped at the start: what a sandbox refuses later is not needed then.
__attribute__((constructor)) static void begin(void) {
    system_clock = (__typeof__(&clock_gettime))dlsym(RTLD_NEXT, "clock_gettime");
    const char *name = getenv("CLOCK_OFFSET");
    int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    void *mapped = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) offset = mapped;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    if (!system_clock) begin();
    int result = system_clock(clock, time);
    if (!result && offset && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) time->tv_sec += *offset;
    return result;
}
