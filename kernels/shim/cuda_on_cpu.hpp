// CUDA's environment of a kernel, on one CPU thread: a warp is 32 fibers that take turns.
//
// A thread runs until a shuffle, where it waits until all threads of its warp have come to it: a
// missing or diverging shuffle is found, and ends the program. Shows errors of indexing, masks
// and reduction; cannot show races between warps, nor what the driver's compiler makes of it.
#pragma once

#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#define __device__
#define __global__
#define __forceinline__ inline

struct Dim3 {
    unsigned x, y, z;
};

static Dim3 threadIdx, blockIdx, blockDim, gridDim;

[[noreturn]] static void stop(const char* why) {
    fprintf(stderr, "block %u,%u thread %u: %s\n", blockIdx.x, blockIdx.y, threadIdx.x, why);
    exit(3);
}

// The bytes from `address` on that are device memory; 0 outside of it.
static size_t device_bytes(uint64_t address);

static unsigned load(uint64_t address) {
    if (address % 4 != 0) stop("a word that is not aligned");
    if (device_bytes(address) < 4) stop("a word outside of the device's memory");
    return *reinterpret_cast<const unsigned*>(address);
}
#define LOAD(address) load(address)

static inline unsigned dot4(unsigned a, unsigned b, unsigned c) {
    for (int byte = 0; byte < 32; byte += 8) c += (a >> byte & 255) * (b >> byte & 255);
    return c;
}

namespace warp {

const unsigned THREADS = 32;
const size_t STACK_BYTES = 64 * 1024;

struct Fiber {
    jmp_buf resume;
    ucontext_t first;
    char* stack;
    bool started;
    bool done;
    bool waits;
    // Shuffles it has come to.
    unsigned shuffles;
};

static Fiber fibers[THREADS];
static jmp_buf scheduler;
static unsigned current, first_thread;
// Values that each thread offers to its current shuffle; those of the one before may still be read.
static unsigned long long offered[2][THREADS];
static void (*kernel)();

static void begin();

// Goes on with a thread where it was.
[[noreturn]] static void enter(unsigned thread) {
    Fiber& fiber = fibers[thread];
    current = thread;
    threadIdx.x = first_thread + thread;
    if (fiber.started) _longjmp(fiber.resume, 1);
    fiber.started = true;
    fiber.stack = static_cast<char*>(malloc(STACK_BYTES));
    if (fiber.stack == nullptr || getcontext(&fiber.first) != 0) stop("no memory for a fiber");
    fiber.first.uc_stack.ss_sp = fiber.stack;
    fiber.first.uc_stack.ss_size = STACK_BYTES;
    fiber.first.uc_link = nullptr;
    makecontext(&fiber.first, begin, 0);
    setcontext(&fiber.first);
    stop("no fiber");
}

// Leaves the current thread, for the next that has not ended; after the last, for the scheduler.
static void leave() {
    if (_setjmp(fibers[current].resume) != 0) return;
    for (unsigned thread = current + 1; thread < THREADS; thread++) {
        if (!fibers[thread].done) enter(thread);
    }
    _longjmp(scheduler, 1);
}

static void begin() {
    for (;;) {
        kernel();
        fibers[current].done = true;
        leave();
    }
}

// Runs the 32 threads from `thread` on to their end.
static void run(unsigned thread) {
    first_thread = thread;
    for (Fiber& fiber : fibers) {
        fiber.done = false;
        fiber.shuffles = 0;
    }
    for (;;) {
        for (Fiber& fiber : fibers) fiber.waits = false;
        if (_setjmp(scheduler) == 0) enter(0);
        unsigned done = 0, waiting = 0;
        for (Fiber& fiber : fibers) {
            done += fiber.done;
            waiting += fiber.waits;
        }
        if (done == THREADS) return;
        if (done != 0) stop("a thread ended while others wait for it");
        if (waiting != THREADS) stop("a thread neither ended nor waits");
    }
}

// Waits until every thread of the warp is here.
static void meet() {
    fibers[current].waits = true;
    leave();
}

}  // namespace warp

static inline unsigned long long __shfl_xor_sync(unsigned threads, unsigned long long value,
                                                 unsigned apart) {
    if (threads != 0xffffffffu) stop("a shuffle of a part of the warp");
    unsigned thread = warp::current;
    unsigned long long* offered = warp::offered[warp::fibers[thread].shuffles++ % 2];
    offered[thread] = value;
    warp::meet();
    return offered[thread ^ apart];
}
