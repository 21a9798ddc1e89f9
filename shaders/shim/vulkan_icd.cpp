// A driver of Vulkan that imports dma-bufs: lavapipe, and what it lacks for that.
//
// Everything goes to lavapipe unchanged but an image that is imported: it becomes a linear one of
// lavapipe's own, and the rows of the dma-buf (any file that can be mapped) are copied into it when its memory
// is bound. Takes rows in a row alone (modifier 0). Settings: SHIM_IMPORTS (how many succeed).

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <vector>

#include <vulkan/vk_icd.h>
#include <vulkan/vulkan.h>

#include "../../kernels/shim/settings.hpp"

static const char* const ADDED[] = {
    VK_EXT_EXTERNAL_MEMORY_DMA_BUF_EXTENSION_NAME,
    VK_EXT_IMAGE_DRM_FORMAT_MODIFIER_EXTENSION_NAME,
};

// Where the rows of an image are in what is bound to it.
struct Rows {
    uint64_t offset, pitch, row_bytes;
    uint32_t count;
};

static std::mutex lock;
typedef std::lock_guard<std::mutex> Guard;
static std::map<VkImage, Rows> images;
static std::map<VkDeviceMemory, int> memories;
static long long imports;
static VkInstance instance_of_all;

static PFN_vkVoidFunction of_lavapipe(VkInstance instance, const char* name) {
    static void* lavapipe = dlopen("libvulkan_lvp.so", RTLD_NOW);
    if (lavapipe == nullptr) {
        fprintf(stderr, "shim: %s\n", dlerror());
        return nullptr;
    }
    static auto find = reinterpret_cast<PFN_vkGetInstanceProcAddr>(dlsym(lavapipe, "vk_icdGetInstanceProcAddr"));
    return find(instance, name);
}

template <typename Function>
static Function real(const char* name) {
    return reinterpret_cast<Function>(of_lavapipe(instance_of_all, name));
}

template <typename Wanted>
static const Wanted* chained(const void* next, VkStructureType type) {
    for (auto* at = static_cast<const VkBaseInStructure*>(next); at != nullptr; at = at->pNext) {
        if (at->sType == type) return reinterpret_cast<const Wanted*>(at);
    }
    return nullptr;
}

static VkResult create_instance(const VkInstanceCreateInfo* info, const VkAllocationCallbacks* memory,
                                VkInstance* made) {
    auto create = reinterpret_cast<PFN_vkCreateInstance>(of_lavapipe(nullptr, "vkCreateInstance"));
    VkResult result = create(info, memory, made);
    if (result == VK_SUCCESS) instance_of_all = *made;
    return result;
}

static VkResult extensions(VkPhysicalDevice device, const char* layer, uint32_t* count,
                           VkExtensionProperties* told) {
    auto list = real<PFN_vkEnumerateDeviceExtensionProperties>("vkEnumerateDeviceExtensionProperties");
    uint32_t known = 0;
    list(device, layer, &known, nullptr);
    std::vector<VkExtensionProperties> all(known);
    list(device, layer, &known, all.data());
    for (const char* name : ADDED) {
        bool is_there = false;
        for (const VkExtensionProperties& one : all) is_there |= strcmp(one.extensionName, name) == 0;
        VkExtensionProperties added = {};
        snprintf(added.extensionName, sizeof added.extensionName, "%s", name);
        added.specVersion = 1;
        if (!is_there) all.push_back(added);
    }
    uint32_t room = told == nullptr ? 0 : *count;
    *count = static_cast<uint32_t>(all.size());
    if (told == nullptr) return VK_SUCCESS;
    uint32_t given = std::min(room, *count);
    memcpy(told, all.data(), given * sizeof *told);
    VkResult result = given < *count ? VK_INCOMPLETE : VK_SUCCESS;
    *count = given;
    return result;
}

static VkResult create_device(VkPhysicalDevice physical, const VkDeviceCreateInfo* info,
                              const VkAllocationCallbacks* memory, VkDevice* made) {
    std::vector<const char*> names;
    for (uint32_t at = 0; at < info->enabledExtensionCount; at++) {
        const char* name = info->ppEnabledExtensionNames[at];
        bool is_ours = false;
        for (const char* added : ADDED) is_ours |= strcmp(name, added) == 0;
        if (!is_ours) names.push_back(name);
    }
    VkDeviceCreateInfo theirs = *info;
    theirs.enabledExtensionCount = static_cast<uint32_t>(names.size());
    theirs.ppEnabledExtensionNames = names.data();
    return real<PFN_vkCreateDevice>("vkCreateDevice")(physical, &theirs, memory, made);
}

static void format_properties(VkPhysicalDevice device, VkFormat format, VkFormatProperties2* told) {
    real<PFN_vkGetPhysicalDeviceFormatProperties2>("vkGetPhysicalDeviceFormatProperties2")(device, format, told);
    auto* found = chained<VkDrmFormatModifierPropertiesListEXT>(
        told->pNext, VK_STRUCTURE_TYPE_DRM_FORMAT_MODIFIER_PROPERTIES_LIST_EXT);
    auto* list = const_cast<VkDrmFormatModifierPropertiesListEXT*>(found);
    if (list == nullptr) return;
    if (list->pDrmFormatModifierProperties != nullptr && list->drmFormatModifierCount > 0) {
        *list->pDrmFormatModifierProperties = {0, 1, told->formatProperties.linearTilingFeatures};
    }
    list->drmFormatModifierCount = 1;
}

static uint32_t bytes_of(VkFormat format) {
    switch (format) {
        case VK_FORMAT_R8_UINT: return 1;
        case VK_FORMAT_R8G8_UINT: return 2;
        case VK_FORMAT_R16_UINT: return 2;
        case VK_FORMAT_R16G16_UINT: return 4;
        default: return 0;
    }
}

static VkResult create_image(VkDevice device, const VkImageCreateInfo* info, const VkAllocationCallbacks* memory,
                             VkImage* made) {
    auto create = real<PFN_vkCreateImage>("vkCreateImage");
    if (info->tiling != VK_IMAGE_TILING_DRM_FORMAT_MODIFIER_EXT) return create(device, info, memory, made);
    auto* wanted = chained<VkImageDrmFormatModifierExplicitCreateInfoEXT>(
        info->pNext, VK_STRUCTURE_TYPE_IMAGE_DRM_FORMAT_MODIFIER_EXPLICIT_CREATE_INFO_EXT);
    uint64_t pixel = bytes_of(info->format);
    if (wanted == nullptr || wanted->drmFormatModifier != 0 || wanted->drmFormatModifierPlaneCount != 1 || pixel == 0) {
        return VK_ERROR_INVALID_DRM_FORMAT_MODIFIER_PLANE_LAYOUT_EXT;
    }
    VkImageCreateInfo linear = *info;
    linear.tiling = VK_IMAGE_TILING_LINEAR;
    linear.pNext = nullptr;
    VkResult result = create(device, &linear, memory, made);
    if (result != VK_SUCCESS) return result;
    Guard guard(lock);
    const VkSubresourceLayout& plane = *wanted->pPlaneLayouts;
    images[*made] = {plane.offset, plane.rowPitch, info->extent.width * pixel, info->extent.height};
    return VK_SUCCESS;
}

static void destroy_image(VkDevice device, VkImage image, const VkAllocationCallbacks* memory) {
    real<PFN_vkDestroyImage>("vkDestroyImage")(device, image, memory);
    Guard guard(lock);
    images.erase(image);
}

static VkResult fd_properties(VkDevice, VkExternalMemoryHandleTypeFlagBits, int, VkMemoryFdPropertiesKHR* told) {
    told->memoryTypeBits = ~0u;
    return VK_SUCCESS;
}

static VkResult allocate(VkDevice device, const VkMemoryAllocateInfo* info, const VkAllocationCallbacks* memory,
                         VkDeviceMemory* made) {
    auto take = real<PFN_vkAllocateMemory>("vkAllocateMemory");
    auto* import = chained<VkImportMemoryFdInfoKHR>(info->pNext, VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR);
    if (import == nullptr || import->handleType != VK_EXTERNAL_MEMORY_HANDLE_TYPE_DMA_BUF_BIT_EXT) {
        return take(device, info, memory, made);
    }
    Guard guard(lock);
    // Counted while there is the setting.
    long long most = setting("SHIM_IMPORTS", -1);
    if (most >= 0 && imports++ >= most) return VK_ERROR_INVALID_EXTERNAL_HANDLE;
    VkMemoryAllocateInfo own = *info;
    own.pNext = nullptr;
    VkResult result = take(device, &own, memory, made);
    if (result == VK_SUCCESS) memories[*made] = import->fd;
    return result;
}

static void release(VkDevice device, VkDeviceMemory given, const VkAllocationCallbacks* memory) {
    real<PFN_vkFreeMemory>("vkFreeMemory")(device, given, memory);
    Guard guard(lock);
    auto found = memories.find(given);
    if (found == memories.end()) return;
    close(found->second);
    memories.erase(found);
}

static VkResult copy_rows(const Rows& rows, int fd, char* to, uint64_t pitch) {
    struct stat file;
    if (fstat(fd, &file) != 0) return VK_ERROR_INVALID_EXTERNAL_HANDLE;
    uint64_t end = rows.offset + (rows.count - 1) * rows.pitch + rows.row_bytes;
    if (rows.row_bytes > rows.pitch || end > static_cast<uint64_t>(file.st_size)) return VK_ERROR_INVALID_EXTERNAL_HANDLE;
    void* mapped = mmap(nullptr, end, PROT_READ, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) return VK_ERROR_INVALID_EXTERNAL_HANDLE;
    for (uint32_t row = 0; row < rows.count; row++) {
        const char* from = static_cast<const char*>(mapped) + rows.offset + row * rows.pitch;
        memcpy(to + row * pitch, from, rows.row_bytes);
    }
    munmap(mapped, end);
    return VK_SUCCESS;
}

static VkResult bind(VkDevice device, VkImage image, VkDeviceMemory memory, VkDeviceSize offset) {
    VkResult bound = real<PFN_vkBindImageMemory>("vkBindImageMemory")(device, image, memory, offset);
    Guard guard(lock);
    if (bound != VK_SUCCESS || images.count(image) == 0 || memories.count(memory) == 0) return bound;
    VkImageSubresource whole = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 0};
    VkSubresourceLayout layout;
    real<PFN_vkGetImageSubresourceLayout>("vkGetImageSubresourceLayout")(device, image, &whole, &layout);
    void* mapped;
    VkResult result = real<PFN_vkMapMemory>("vkMapMemory")(device, memory, 0, VK_WHOLE_SIZE, 0, &mapped);
    if (result != VK_SUCCESS) return result;
    char* to = static_cast<char*>(mapped) + offset + layout.offset;
    result = copy_rows(images[image], memories[memory], to, layout.rowPitch);
    real<PFN_vkUnmapMemory>("vkUnmapMemory")(device, memory);
    return result;
}

static PFN_vkVoidFunction of_device(VkDevice device, const char* name);
static PFN_vkVoidFunction of_instance(VkInstance instance, const char* name);

static PFN_vkVoidFunction ours(const char* name) {
#define OURS(theirs, own) \
    if (strcmp(name, #theirs) == 0) return reinterpret_cast<PFN_vkVoidFunction>(static_cast<PFN_##theirs>(own));
    OURS(vkGetInstanceProcAddr, of_instance)
    OURS(vkGetDeviceProcAddr, of_device)
    OURS(vkCreateInstance, create_instance)
    OURS(vkEnumerateDeviceExtensionProperties, extensions)
    OURS(vkCreateDevice, create_device)
    OURS(vkGetPhysicalDeviceFormatProperties2, format_properties)
    OURS(vkGetPhysicalDeviceFormatProperties2KHR, format_properties)
    OURS(vkCreateImage, create_image)
    OURS(vkDestroyImage, destroy_image)
    OURS(vkGetMemoryFdPropertiesKHR, fd_properties)
    OURS(vkAllocateMemory, allocate)
    OURS(vkFreeMemory, release)
    OURS(vkBindImageMemory, bind)
    return nullptr;
}

static PFN_vkVoidFunction of_device(VkDevice device, const char* name) {
    PFN_vkVoidFunction own = ours(name);
    return own != nullptr ? own : real<PFN_vkGetDeviceProcAddr>("vkGetDeviceProcAddr")(device, name);
}

static PFN_vkVoidFunction of_instance(VkInstance instance, const char* name) {
    PFN_vkVoidFunction own = ours(name);
    return own != nullptr ? own : of_lavapipe(instance, name);
}

extern "C" {

VKAPI_ATTR VkResult VKAPI_CALL vk_icdNegotiateLoaderICDInterfaceVersion(uint32_t* version) {
    // Without the functions of later ones.
    if (*version > 4) *version = 4;
    return VK_SUCCESS;
}

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vk_icdGetInstanceProcAddr(VkInstance instance, const char* name) {
    return of_instance(instance, name);
}

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vk_icdGetPhysicalDeviceProcAddr(VkInstance instance, const char* name) {
    (void)instance;
    // The loader knows those that are ours.
    bool is_of_physical = strstr(name, "vkGetPhysicalDevice") == name;
    return is_of_physical ? of_instance(instance_of_all, name) : nullptr;
}

}  // extern "C"
