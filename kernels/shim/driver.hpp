// State shared by the parts of the stand-in driver.
//
// Settings come from the environment, or as lines NAME=VALUE from a file `settings` beside the library, as
// a confined process has no environment: SHIM_VERSION, SHIM_DEVICES, SHIM_CAPABILITY (75 is 7.5),
// SHIM_MEMORY (bytes), SHIM_LAUNCHES, SHIM_DECODES, SHIM_COPIES and SHIM_FETCHES (how many succeed before the
// device is lost) and SHIM_ANSWERED (after how many launches it hangs).
#pragma once

#include <stdint.h>

#include <mutex>
#include <string>

#include <ffnvcodec/dynlink_cuda.h>

enum Result {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NO_DEVICE = 100,
    INVALID_PTX = 218,
    NOT_FOUND = 500,
    NOT_READY = 600,
    LAUNCH_FAILED = 719,
    NOT_SUPPORTED = 801,
};

// All state of the driver, launches included: decoders and measurers are on threads of their own.
extern std::recursive_mutex driver_lock;
typedef std::lock_guard<std::recursive_mutex> Guard;

// An error stays with the context, as the driver's do.
extern bool lost;

long long setting(const char* name, long long otherwise);

// The path of a file in the folder of this library.
std::string beside(const char* name);

extern "C" {
Result cuMemAlloc_v2(uint64_t* address, size_t bytes);
Result cuMemFree_v2(uint64_t address);
}
