// A driver that is not there: the functions of libcuda.so that the measurer and libav call, on the CPU.
//
// Device memory is host memory that every load of the kernel is checked against; a launch runs
// the unchanged CUDA source at once. There is one context, the primary one: who makes another is refused.
// Settings make it old, empty, small or lost, see driver.hpp. Error numbers and attributes are those of
// the CUDA driver API.

#include "cuda_on_cpu.hpp"

#include <dlfcn.h>
#include <string.h>

#include <fstream>
#include <map>
#include <string>

#include "../cuda/cell_sums.cu"
#include "driver.hpp"

std::recursive_mutex driver_lock;
bool lost;

std::string beside(const char* name) {
    Dl_info info;
    if (dladdr(reinterpret_cast<void*>(&beside), &info) == 0) return name;
    std::string path = info.dli_fname;
    return path.substr(0, path.rfind('/') + 1) + name;
}

long long setting(const char* name, long long otherwise) {
    if (const char* text = getenv(name)) return atoll(text);
    std::ifstream lines(beside("settings"));
    std::string line, start = std::string(name) + "=";
    while (std::getline(lines, line)) {
        if (line.compare(0, start.size(), start) == 0) return atoll(line.c_str() + start.size());
    }
    return otherwise;
}

// Start and size of what is allocated.
static std::map<uint64_t, size_t> allocated;
static size_t allocated_bytes;
static long long launches;
// Of planes, within the device, and out of its memory to the host's.
static long long copies, fetches;
// Of the primary context: who holds it, and how its threads wait.
static int retained;
static unsigned context_flags;

// The allocation that was last looked up: most loads are from the same.
static uint64_t last_start, last_bytes;

static size_t device_bytes(uint64_t address) {
    if (address - last_start >= last_bytes) {
        auto after = allocated.upper_bound(address);
        if (after == allocated.begin()) return 0;
        --after;
        last_start = after->first;
        last_bytes = after->second;
    }
    return address - last_start < last_bytes ? last_bytes - (address - last_start) : 0;
}

static const Surface* given_surfaces;
static u32* given_sums;

static void one_thread() { cell_sums(given_surfaces, given_sums); }

// An error stays with the context, as the driver's do.
static Result state() { return lost ? LAUNCH_FAILED : SUCCESS; }

static Result copy(void* to, const void* from, size_t bytes, uint64_t device) {
    Guard guard(driver_lock);
    if (lost) return LAUNCH_FAILED;
    if (bytes > device_bytes(device)) return INVALID_VALUE;
    memcpy(to, from, bytes);
    return SUCCESS;
}

template <typename T>
static Result give(T** handle) {
    static char something;
    *handle = reinterpret_cast<T*>(&something);
    return state();
}

extern "C" {

Result cuInit(unsigned) { return setting("SHIM_DEVICES", 1) == 0 ? NO_DEVICE : SUCCESS; }

Result cuDriverGetVersion(int* version) {
    *version = static_cast<int>(setting("SHIM_VERSION", 12000));
    return SUCCESS;
}

Result cuDeviceGetCount(int* count) {
    *count = static_cast<int>(setting("SHIM_DEVICES", 1));
    return SUCCESS;
}

Result cuDeviceGet(int* device, int ordinal) {
    *device = ordinal;
    return SUCCESS;
}

Result cuDeviceGetName(char* name, int bytes, int) {
    snprintf(name, bytes, "shim");
    return SUCCESS;
}

Result cuDeviceGetAttribute(int* value, int attribute, int) {
    const int TEXTURE_ALIGNMENT = 14, CAPABILITY_MAJOR = 75, CAPABILITY_MINOR = 76;
    int capability = static_cast<int>(setting("SHIM_CAPABILITY", 75));
    *value = attribute == CAPABILITY_MAJOR   ? capability / 10
             : attribute == CAPABILITY_MINOR ? capability % 10
             : attribute == TEXTURE_ALIGNMENT ? 512
                                              : 0;
    return SUCCESS;
}

Result cuDevicePrimaryCtxGetState(int, unsigned* flags, int* is_active) {
    Guard guard(driver_lock);
    *flags = context_flags;
    *is_active = retained > 0;
    return SUCCESS;
}

Result cuDevicePrimaryCtxSetFlags(int, unsigned flags) {
    Guard guard(driver_lock);
    context_flags = flags;
    return SUCCESS;
}

Result cuDevicePrimaryCtxRetain(void** context, int) {
    Guard guard(driver_lock);
    retained++;
    return give(context);
}

Result cuDevicePrimaryCtxRelease(int) {
    Guard guard(driver_lock);
    retained--;
    return SUCCESS;
}

Result cuDevicePrimaryCtxRelease_v2(int device) { return cuDevicePrimaryCtxRelease(device); }
Result cuCtxSetCurrent(void*) { return state(); }
Result cuCtxPushCurrent_v2(void*) { return SUCCESS; }
Result cuCtxPopCurrent_v2(void** context) {
    give(context);
    return SUCCESS;
}
Result cuCtxGetCurrent(void** context) { return give(context); }
Result cuCtxSynchronize() { return state(); }

Result cuStreamCreate(void** stream, unsigned) { return give(stream); }
Result cuStreamDestroy_v2(void*) { return state(); }
Result cuStreamSynchronize(void*) { return state(); }
Result cuStreamWaitEvent(void*, void*, unsigned) { return state(); }
Result cuStreamIsCapturing(void*, int* status) {
    *status = 0;
    return state();
}

Result cuEventCreate(void** event, unsigned) { return give(event); }
Result cuEventDestroy_v2(void*) { return state(); }
Result cuEventRecord(void*, void*) { return state(); }
Result cuEventSynchronize(void*) { return state(); }
Result cuEventQuery(void*) {
    return launches > setting("SHIM_ANSWERED", 1ll << 40) ? NOT_READY : state();
}

Result cuMemAlloc_v2(uint64_t* address, size_t bytes) {
    Guard guard(driver_lock);
    if (lost) return LAUNCH_FAILED;
    size_t limit = static_cast<size_t>(setting("SHIM_MEMORY", 1ll << 34));
    if (allocated_bytes + bytes > limit) return OUT_OF_MEMORY;
    void* memory = aligned_alloc(256, (bytes + 255) / 256 * 256);
    if (memory == nullptr) return OUT_OF_MEMORY;
    memset(memory, 0xa5, bytes);
    *address = reinterpret_cast<uint64_t>(memory);
    allocated[*address] = bytes;
    allocated_bytes += bytes;
    return SUCCESS;
}

Result cuMemFree_v2(uint64_t address) {
    Guard guard(driver_lock);
    auto found = allocated.find(address);
    if (found == allocated.end()) return INVALID_VALUE;
    free(reinterpret_cast<void*>(address));
    allocated_bytes -= found->second;
    allocated.erase(found);
    last_bytes = 0;
    return state();
}

Result cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
    *memory = malloc(bytes);
    return *memory ? state() : OUT_OF_MEMORY;
}

Result cuMemFreeHost(void* memory) {
    free(memory);
    return state();
}

Result cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, void*) {
    return copy(reinterpret_cast<void*>(to), from, bytes, to);
}

Result cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, void*) {
    return copy(to, reinterpret_cast<const void*>(from), bytes, from);
}

// Copies pictures for libav: rows of a plane, within the device or between it and the host.
Result cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* plan, void*) {
    Guard guard(driver_lock);
    bool from_device = plan->srcMemoryType == CU_MEMORYTYPE_DEVICE;
    bool to_device = plan->dstMemoryType == CU_MEMORYTYPE_DEVICE;
    if (from_device && to_device && copies++ >= setting("SHIM_COPIES", 1ll << 40)) lost = true;
    if (from_device && !to_device && fetches++ >= setting("SHIM_FETCHES", 1ll << 40)) lost = true;
    if (lost) return LAUNCH_FAILED;
    if (plan->Height == 0) return SUCCESS;
    size_t from_bytes = (plan->Height - 1) * plan->srcPitch + plan->WidthInBytes;
    size_t to_bytes = (plan->Height - 1) * plan->dstPitch + plan->WidthInBytes;
    if (from_device && device_bytes(plan->srcDevice) < from_bytes) return INVALID_VALUE;
    if (to_device && device_bytes(plan->dstDevice) < to_bytes) return INVALID_VALUE;
    const char* from = from_device ? reinterpret_cast<const char*>(plan->srcDevice)
                                   : static_cast<const char*>(plan->srcHost);
    char* to = to_device ? reinterpret_cast<char*>(plan->dstDevice)
                         : static_cast<char*>(plan->dstHost);
    for (size_t row = 0; row < plan->Height; row++) {
        memcpy(to + row * plan->dstPitch, from + row * plan->srcPitch, plan->WidthInBytes);
    }
    return SUCCESS;
}

Result cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, void*) {
    Guard guard(driver_lock);
    if (bytes > device_bytes(to)) return INVALID_VALUE;
    memset(reinterpret_cast<void*>(to), value, bytes);
    return state();
}

Result cuModuleLoadData(void** module, const void* image) {
    const char* ptx = static_cast<const char*>(image);
    bool sound = strstr(ptx, ".version 8.0") && strstr(ptx, ".target sm_75");
    return sound && strstr(ptx, ".entry cell_sums(") ? give(module) : INVALID_PTX;
}

Result cuModuleUnload(void*) { return SUCCESS; }

Result cuModuleGetFunction(void** function, void*, const char* name) {
    return strcmp(name, "cell_sums") == 0 ? give(function) : NOT_FOUND;
}

Result cuLaunchKernel(void*, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                      unsigned block_y, unsigned block_z, unsigned, void*, void** arguments,
                      void**) {
    Guard guard(driver_lock);
    if (grid_z != 1 || block_y != 1 || block_z != 1 || block_x % THREADS != 0 || block_x > 1024)
        return INVALID_VALUE;
    if (lost || launches++ >= setting("SHIM_LAUNCHES", 1ll << 40)) {
        lost = true;
        return LAUNCH_FAILED;
    }
    uint64_t surfaces = *static_cast<uint64_t*>(arguments[0]);
    uint64_t sums = *static_cast<uint64_t*>(arguments[1]);
    if (device_bytes(surfaces) < 3 * sizeof(Surface) * grid_y) return INVALID_VALUE;
    if (device_bytes(sums) < sizeof(u32) * SUMS * grid_y) return INVALID_VALUE;
    given_surfaces = reinterpret_cast<const Surface*>(surfaces);
    given_sums = reinterpret_cast<u32*>(sums);
    memset(given_sums, 0xa5, sizeof(u32) * SUMS * grid_y);
    warp::kernel = one_thread;
    blockDim = {block_x, 1, 1};
    gridDim = {grid_x, grid_y, 1};
    for (blockIdx.y = 0; blockIdx.y < grid_y; blockIdx.y++) {
        for (blockIdx.x = 0; blockIdx.x < grid_x; blockIdx.x++) {
            for (unsigned thread = 0; thread < block_x; thread += THREADS) warp::run(thread);
        }
    }
    return SUCCESS;
}

static const char* name_of(Result result) {
    switch (result) {
        case SUCCESS: return "CUDA_SUCCESS";
        case INVALID_VALUE: return "CUDA_ERROR_INVALID_VALUE";
        case OUT_OF_MEMORY: return "CUDA_ERROR_OUT_OF_MEMORY";
        case NO_DEVICE: return "CUDA_ERROR_NO_DEVICE";
        case INVALID_PTX: return "CUDA_ERROR_INVALID_PTX";
        case NOT_FOUND: return "CUDA_ERROR_NOT_FOUND";
        case NOT_READY: return "CUDA_ERROR_NOT_READY";
        case NOT_SUPPORTED: return "CUDA_ERROR_NOT_SUPPORTED";
        case LAUNCH_FAILED: return "CUDA_ERROR_LAUNCH_FAILED";
    }
    return "unknown";
}

Result cuGetErrorName(Result result, const char** text) {
    *text = name_of(result);
    return SUCCESS;
}

Result cuGetErrorString(Result result, const char** text) { return cuGetErrorName(result, text); }

// Functions that libav looks up and need not call.
#define REFUSED(name) \
    Result name() { return NOT_SUPPORTED; }
REFUSED(cuDeviceComputeCapability)
REFUSED(cuCtxCreate_v2)
REFUSED(cuCtxSetLimit)
REFUSED(cuCtxDestroy_v2)
REFUSED(cuMemAllocPitch_v2)
REFUSED(cuMemAllocManaged)
REFUSED(cuMemcpy)
REFUSED(cuMemcpyAsync)
REFUSED(cuMemcpy2D_v2)
REFUSED(cuMemcpyHtoD_v2)
REFUSED(cuMemcpyDtoH_v2)
REFUSED(cuMemcpyDtoD_v2)
REFUSED(cuMemcpyDtoDAsync_v2)
REFUSED(cuCtxGetDevice)
REFUSED(cuDevicePrimaryCtxReset)
REFUSED(cuStreamQuery)
REFUSED(cuStreamAddCallback)
REFUSED(cuLinkCreate)
REFUSED(cuLinkAddData)
REFUSED(cuLinkComplete)
REFUSED(cuLinkDestroy)
REFUSED(cuModuleGetGlobal)
REFUSED(cuTexObjectCreate)
REFUSED(cuTexObjectDestroy)
REFUSED(cuGLGetDevices_v2)
REFUSED(cuGraphicsGLRegisterImage)
REFUSED(cuGraphicsUnregisterResource)
REFUSED(cuGraphicsMapResources)
REFUSED(cuGraphicsUnmapResources)
REFUSED(cuImportExternalMemory)
REFUSED(cuDestroyExternalMemory)
REFUSED(cuMipmappedArrayGetLevel)
REFUSED(cuMipmappedArrayDestroy)
REFUSED(cuImportExternalSemaphore)
REFUSED(cuDestroyExternalSemaphore)
REFUSED(cuWaitExternalSemaphoresAsync)
REFUSED(cuArray3DCreate_v2)
REFUSED(cuArrayDestroy)
REFUSED(cuEGLStreamProducerConnect)
REFUSED(cuEGLStreamProducerDisconnect)
REFUSED(cuEGLStreamConsumerDisconnect)
REFUSED(cuGraphicsSubResourceGetMappedArray)
REFUSED(cuGraphicsResourceGetMappedPointer_v2)
REFUSED(cuExternalMemoryGetMappedBuffer)
REFUSED(cuExternalMemoryGetMappedMipmappedArray)
REFUSED(cuSignalExternalSemaphoresAsync)
REFUSED(cuEGLStreamProducerPresentFrame)
REFUSED(cuEGLStreamProducerReturnFrame)
REFUSED(cuDeviceGetUuid)

}  // extern "C"
