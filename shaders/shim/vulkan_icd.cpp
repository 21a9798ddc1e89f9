// A Vulkan driver that imports dma-bufs, for tests: Mesa's for CPUs, and a copy in the place of the import.
//
// Everything is passed on as it comes, handles too, but what has to do with dma-bufs. An image of one is a
// linear image of Mesa's, which is given the rows of the file when its memory is bound. Any file that can be
// mapped plays a dma-buf. What is asked must be as the specification says, or is refused.
//
// SHIM_IMPORTS: how many imports succeed before one is refused.

#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vulkan/vk_icd.h>
#include <vulkan/vulkan.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "../../kernels/shim/settings.hpp"

namespace {

const uint64_t LINEAR = 0;
// Of an image that is compressed, in a plane of its own: I915_FORMAT_MOD_Y_TILED_CCS.
const uint64_t COMPRESSED = (uint64_t{1} << 56) | 4;

const char* const EXTENSIONS[] = {
    VK_EXT_EXTERNAL_MEMORY_DMA_BUF_EXTENSION_NAME,
    VK_EXT_IMAGE_DRM_FORMAT_MODIFIER_EXTENSION_NAME,
};

// Where an image's rows are in a file.
struct Rows {
    uint64_t offset, pitch, row_bytes, count;
};

std::mutex lock;
std::map<VkImage, Rows> images;
std::set<VkImage> copied, readable;
std::map<VkDeviceMemory, int> imported;
long long imports = 0;

// The one that lives.
VkInstance instance = VK_NULL_HANDLE;

// The library that Mesa's manifest names.
void* mesa() {
    static void* const library = [] {
        const std::string folder = "/usr/share/vulkan/icd.d/";
        std::string path;
        DIR* listing = opendir(folder.c_str());
        while (const dirent* entry = listing ? readdir(listing) : nullptr) {
            if (strncmp(entry->d_name, "lvp_icd.", 8) != 0) continue;
            std::ifstream manifest(folder + entry->d_name);
            const std::string text(std::istreambuf_iterator<char>(manifest), {});
            const size_t key = text.find("\"library_path\"");
            const size_t start = text.find('"', text.find(':', key)) + 1;
            if (key != std::string::npos) path = text.substr(start, text.find('"', start) - start);
        }
        if (listing) closedir(listing);
        return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    }();
    return library;
}

template <typename Function>
Function exported(const char* name) {
    return mesa() ? reinterpret_cast<Function>(dlsym(mesa(), name)) : nullptr;
}

PFN_vkVoidFunction of_instance(VkInstance owner, const char* name) {
    static const auto get = exported<PFN_vkGetInstanceProcAddr>("vk_icdGetInstanceProcAddr");
    return get ? get(owner, name) : nullptr;
}

PFN_vkVoidFunction of_device(VkDevice owner, const char* name) {
    const auto get = of_instance(instance, "vkGetDeviceProcAddr");
    return reinterpret_cast<PFN_vkGetDeviceProcAddr>(get)(owner, name);
}

#define OF_INSTANCE(name) reinterpret_cast<PFN_##name>(of_instance(instance, #name))
#define OF_DEVICE(name) reinterpret_cast<PFN_##name>(of_device(owner, #name))

// The structure of this type in a chain.
template <typename Structure>
Structure* find(const void* chain, VkStructureType type) {
    for (auto* at = static_cast<const VkBaseInStructure*>(chain); at; at = at->pNext) {
        if (at->sType == type) return reinterpret_cast<Structure*>(const_cast<VkBaseInStructure*>(at));
    }
    return nullptr;
}

// Bytes of a texel of what is imported; 0 of anything else.
uint64_t texel_bytes(VkFormat format) {
    switch (format) {
        case VK_FORMAT_R8_UINT: return 1;
        case VK_FORMAT_R8G8_UINT:
        case VK_FORMAT_R16_UINT: return 2;
        case VK_FORMAT_R16G16_UINT: return 4;
        default: return 0;
    }
}

VKAPI_ATTR VkResult VKAPI_CALL create_instance(const VkInstanceCreateInfo* info,
                                               const VkAllocationCallbacks* allocator, VkInstance* made) {
    const auto real = reinterpret_cast<PFN_vkCreateInstance>(of_instance(VK_NULL_HANDLE, "vkCreateInstance"));
    if (!real) return VK_ERROR_INITIALIZATION_FAILED;
    const VkResult result = real(info, allocator, made);
    if (result == VK_SUCCESS) instance = *made;
    return result;
}

VKAPI_ATTR void VKAPI_CALL destroy_instance(VkInstance owner, const VkAllocationCallbacks* allocator) {
    const auto real = of_instance(owner, "vkDestroyInstance");
    if (owner == instance) instance = VK_NULL_HANDLE;
    reinterpret_cast<PFN_vkDestroyInstance>(real)(owner, allocator);
}

VKAPI_ATTR VkResult VKAPI_CALL list_extensions(VkPhysicalDevice adapter, const char* layer, uint32_t* count,
                                               VkExtensionProperties* properties) {
    const auto real = OF_INSTANCE(vkEnumerateDeviceExtensionProperties);
    uint32_t known = 0;
    VkResult result = real(adapter, layer, &known, nullptr);
    if (result != VK_SUCCESS) return result;
    std::vector<VkExtensionProperties> all(known);
    result = real(adapter, layer, &known, all.data());
    if (result != VK_SUCCESS) return result;
    for (const char* name : EXTENSIONS) {
        VkExtensionProperties own = {};
        strncpy(own.extensionName, name, sizeof own.extensionName - 1);
        own.specVersion = 1;
        all.push_back(own);
    }
    const uint32_t total = static_cast<uint32_t>(all.size());
    const uint32_t room = properties ? *count : 0;
    *count = properties && room < total ? room : total;
    if (!properties) return VK_SUCCESS;
    std::copy_n(all.begin(), *count, properties);
    return room < total ? VK_INCOMPLETE : VK_SUCCESS;
}

VKAPI_ATTR VkResult VKAPI_CALL create_device(VkPhysicalDevice adapter, const VkDeviceCreateInfo* info,
                                             const VkAllocationCallbacks* allocator, VkDevice* made) {
    std::vector<const char*> passed;
    for (uint32_t at = 0; at < info->enabledExtensionCount; at++) {
        const std::string name = info->ppEnabledExtensionNames[at];
        bool ours = false;
        for (const char* own : EXTENSIONS) ours = ours || name == own;
        if (!ours) passed.push_back(info->ppEnabledExtensionNames[at]);
    }
    VkDeviceCreateInfo stripped = *info;
    stripped.enabledExtensionCount = static_cast<uint32_t>(passed.size());
    stripped.ppEnabledExtensionNames = passed.data();
    return OF_INSTANCE(vkCreateDevice)(adapter, &stripped, allocator, made);
}

VKAPI_ATTR void VKAPI_CALL format_properties(VkPhysicalDevice adapter, VkFormat format,
                                             VkFormatProperties2* properties) {
    OF_INSTANCE(vkGetPhysicalDeviceFormatProperties2)(adapter, format, properties);
    auto* list = find<VkDrmFormatModifierPropertiesListEXT>(
        properties, VK_STRUCTURE_TYPE_DRM_FORMAT_MODIFIER_PROPERTIES_LIST_EXT);
    if (!list) return;
    const VkFormatFeatureFlags copied = VK_FORMAT_FEATURE_TRANSFER_SRC_BIT;
    const VkDrmFormatModifierPropertiesEXT known[] = {{COMPRESSED, 2, copied}, {LINEAR, 1, copied}};
    const uint32_t total = texel_bytes(format) ? 2 : 0;
    auto* room = list->pDrmFormatModifierProperties;
    list->drmFormatModifierCount = room ? std::min(list->drmFormatModifierCount, total) : total;
    if (room) std::copy_n(known, list->drmFormatModifierCount, room);
}

VKAPI_ATTR VkResult VKAPI_CALL image_properties(VkPhysicalDevice adapter,
                                                const VkPhysicalDeviceImageFormatInfo2* info,
                                                VkImageFormatProperties2* properties) {
    const auto real = OF_INSTANCE(vkGetPhysicalDeviceImageFormatProperties2);
    if (info->tiling != VK_IMAGE_TILING_DRM_FORMAT_MODIFIER_EXT) return real(adapter, info, properties);
    const auto* arranged = find<VkPhysicalDeviceImageDrmFormatModifierInfoEXT>(
        info, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_IMAGE_DRM_FORMAT_MODIFIER_INFO_EXT);
    const auto* external = find<VkPhysicalDeviceExternalImageFormatInfo>(
        info, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_IMAGE_FORMAT_INFO);
    auto* outside = find<VkExternalImageFormatProperties>(properties,
                                                          VK_STRUCTURE_TYPE_EXTERNAL_IMAGE_FORMAT_PROPERTIES);
    if (!arranged || arranged->drmFormatModifier != LINEAR) return VK_ERROR_FORMAT_NOT_SUPPORTED;
    if (external && external->handleType != VK_EXTERNAL_MEMORY_HANDLE_TYPE_DMA_BUF_BIT_EXT) {
        return VK_ERROR_FORMAT_NOT_SUPPORTED;
    }
    VkPhysicalDeviceImageFormatInfo2 linear = *info;
    linear.pNext = nullptr;
    linear.tiling = VK_IMAGE_TILING_LINEAR;
    VkImageFormatProperties2 answer = {VK_STRUCTURE_TYPE_IMAGE_FORMAT_PROPERTIES_2, nullptr, {}};
    const VkResult result = real(adapter, &linear, &answer);
    properties->imageFormatProperties = answer.imageFormatProperties;
    const VkExternalMemoryHandleTypeFlags type = VK_EXTERNAL_MEMORY_HANDLE_TYPE_DMA_BUF_BIT_EXT;
    const VkExternalMemoryFeatureFlags features = VK_EXTERNAL_MEMORY_FEATURE_IMPORTABLE_BIT;
    if (outside) outside->externalMemoryProperties = {features, type, type};
    return result;
}

VKAPI_ATTR VkResult VKAPI_CALL create_image(VkDevice owner, const VkImageCreateInfo* info,
                                            const VkAllocationCallbacks* allocator, VkImage* made) {
    const auto real = OF_DEVICE(vkCreateImage);
    if (info->tiling != VK_IMAGE_TILING_DRM_FORMAT_MODIFIER_EXT) return real(owner, info, allocator, made);
    const auto* arranged = find<VkImageDrmFormatModifierExplicitCreateInfoEXT>(
        info, VK_STRUCTURE_TYPE_IMAGE_DRM_FORMAT_MODIFIER_EXPLICIT_CREATE_INFO_EXT);
    const auto* external = find<VkExternalMemoryImageCreateInfo>(
        info, VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMAGE_CREATE_INFO);
    const uint64_t row_bytes = info->extent.width * texel_bytes(info->format);
    const bool sound = arranged && arranged->drmFormatModifier == LINEAR &&
                       arranged->drmFormatModifierPlaneCount == 1 && row_bytes > 0 && external &&
                       external->handleTypes == VK_EXTERNAL_MEMORY_HANDLE_TYPE_DMA_BUF_BIT_EXT &&
                       info->initialLayout == VK_IMAGE_LAYOUT_UNDEFINED;
    if (!sound) return VK_ERROR_INVALID_DRM_FORMAT_MODIFIER_PLANE_LAYOUT_EXT;
    const VkSubresourceLayout& plane = arranged->pPlaneLayouts[0];
    if (plane.rowPitch < row_bytes || plane.size != 0 || plane.arrayPitch != 0 || plane.depthPitch != 0) {
        return VK_ERROR_INVALID_DRM_FORMAT_MODIFIER_PLANE_LAYOUT_EXT;
    }
    VkImageCreateInfo linear = *info;
    linear.pNext = nullptr;
    linear.tiling = VK_IMAGE_TILING_LINEAR;
    const VkResult result = real(owner, &linear, allocator, made);
    if (result != VK_SUCCESS) return result;
    const std::lock_guard<std::mutex> guard(lock);
    images[*made] = {plane.offset, plane.rowPitch, row_bytes, info->extent.height};
    return VK_SUCCESS;
}

VKAPI_ATTR void VKAPI_CALL destroy_image(VkDevice owner, VkImage image,
                                         const VkAllocationCallbacks* allocator) {
    {
        const std::lock_guard<std::mutex> guard(lock);
        // The barrier may be recorded after the copy, and be given to the queue before it.
        if (images.erase(image) && copied.erase(image) > readable.erase(image)) {
            fputs("an imported image was made readable by no barrier\n", stderr);
            abort();
        }
    }
    OF_DEVICE(vkDestroyImage)(owner, image, allocator);
}

VKAPI_ATTR VkResult VKAPI_CALL fd_properties(VkDevice, VkExternalMemoryHandleTypeFlagBits type, int fd,
                                             VkMemoryFdPropertiesKHR* properties) {
    const bool ours = type == VK_EXTERNAL_MEMORY_HANDLE_TYPE_DMA_BUF_BIT_EXT && fd >= 0;
    if (!ours) return VK_ERROR_INVALID_EXTERNAL_HANDLE;
    properties->memoryTypeBits = UINT32_MAX;
    return VK_SUCCESS;
}

VKAPI_ATTR VkResult VKAPI_CALL allocate(VkDevice owner, const VkMemoryAllocateInfo* info,
                                        const VkAllocationCallbacks* allocator, VkDeviceMemory* made) {
    const auto real = OF_DEVICE(vkAllocateMemory);
    const auto* file =
        find<VkImportMemoryFdInfoKHR>(info, VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR);
    if (!file || file->handleType != VK_EXTERNAL_MEMORY_HANDLE_TYPE_DMA_BUF_BIT_EXT) {
        return real(owner, info, allocator, made);
    }
    const std::lock_guard<std::mutex> guard(lock);
    if (imports >= setting("SHIM_IMPORTS", INT64_MAX)) return VK_ERROR_INVALID_EXTERNAL_HANDLE;
    VkMemoryAllocateInfo own = *info;
    own.pNext = nullptr;
    const VkResult result = real(owner, &own, allocator, made);
    if (result != VK_SUCCESS) return result;
    imports++;
    imported[*made] = file->fd;
    return VK_SUCCESS;
}

VKAPI_ATTR void VKAPI_CALL release(VkDevice owner, VkDeviceMemory memory,
                                   const VkAllocationCallbacks* allocator) {
    {
        const std::lock_guard<std::mutex> guard(lock);
        const auto found = imported.find(memory);
        if (found != imported.end()) {
            close(found->second);
            imported.erase(found);
        }
    }
    OF_DEVICE(vkFreeMemory)(owner, memory, allocator);
}

// Writes the file's rows where Mesa reads the image's.
VkResult copy_rows(VkDevice owner, VkImage image, VkDeviceMemory memory, VkDeviceSize at, const Rows& rows,
                   int fd) {
    struct stat file;
    const uint64_t end = rows.offset + rows.pitch * (rows.count - 1) + rows.row_bytes;
    if (fstat(fd, &file) != 0 || static_cast<uint64_t>(file.st_size) < end) {
        return VK_ERROR_INVALID_EXTERNAL_HANDLE;
    }
    const VkImageSubresource whole = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 0};
    VkSubresourceLayout layout;
    OF_DEVICE(vkGetImageSubresourceLayout)(owner, image, &whole, &layout);
    void* from = mmap(nullptr, end, PROT_READ, MAP_SHARED, fd, 0);
    if (from == MAP_FAILED) return VK_ERROR_INVALID_EXTERNAL_HANDLE;
    void* to = nullptr;
    const VkResult mapped = OF_DEVICE(vkMapMemory)(owner, memory, 0, VK_WHOLE_SIZE, 0, &to);
    if (mapped == VK_SUCCESS) {
        auto* source = static_cast<const char*>(from) + rows.offset;
        auto* target = static_cast<char*>(to) + at + layout.offset;
        for (uint64_t row = 0; row < rows.count; row++) {
            memcpy(target + row * layout.rowPitch, source + row * rows.pitch, rows.row_bytes);
        }
        OF_DEVICE(vkUnmapMemory)(owner, memory);
    }
    munmap(from, end);
    return mapped;
}

VKAPI_ATTR VkResult VKAPI_CALL bind(VkDevice owner, VkImage image, VkDeviceMemory memory, VkDeviceSize at) {
    const VkResult result = OF_DEVICE(vkBindImageMemory)(owner, image, memory, at);
    if (result != VK_SUCCESS) return result;
    const std::lock_guard<std::mutex> guard(lock);
    const auto rows = images.find(image);
    const auto file = imported.find(memory);
    if (rows == images.end() || file == imported.end()) return VK_SUCCESS;
    return copy_rows(owner, image, memory, at, rows->second, file->second);
}

// A transition from the undefined layout may lose what is in an image: of an imported one it is a fault.
VKAPI_ATTR void VKAPI_CALL barrier(VkCommandBuffer commands, VkPipelineStageFlags from, VkPipelineStageFlags to,
                                   VkDependencyFlags flags, uint32_t memories, const VkMemoryBarrier* memory,
                                   uint32_t buffers, const VkBufferMemoryBarrier* buffer, uint32_t count,
                                   const VkImageMemoryBarrier* image) {
    {
        const std::lock_guard<std::mutex> guard(lock);
        for (uint32_t at = 0; at < count; at++) {
            const bool discards = image[at].oldLayout == VK_IMAGE_LAYOUT_UNDEFINED;
            if (discards && images.count(image[at].image)) {
                fputs("an imported image is discarded\n", stderr);
                abort();
            }
            const bool reads = image[at].newLayout == VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL;
            if (reads && images.count(image[at].image)) readable.insert(image[at].image);
        }
    }
    const auto real = OF_INSTANCE(vkCmdPipelineBarrier);
    real(commands, from, to, flags, memories, memory, buffers, buffer, count, image);
}

VKAPI_ATTR void VKAPI_CALL copy(VkCommandBuffer commands, VkImage image, VkImageLayout layout, VkBuffer buffer,
                                uint32_t count, const VkBufferImageCopy* regions) {
    {
        const std::lock_guard<std::mutex> guard(lock);
        if (images.count(image)) copied.insert(image);
    }
    OF_INSTANCE(vkCmdCopyImageToBuffer)(commands, image, layout, buffer, count, regions);
}

PFN_vkVoidFunction ours(const std::string& name);

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL device_function(VkDevice owner, const char* name) {
    const PFN_vkVoidFunction own = ours(name);
    return own ? own : of_device(owner, name);
}

PFN_vkVoidFunction ours(const std::string& name) {
#define OURS(theirs, function) \
    {theirs, reinterpret_cast<PFN_vkVoidFunction>(function)}
    static const std::map<std::string, PFN_vkVoidFunction> functions = {
        OURS("vkCreateInstance", create_instance),
        OURS("vkDestroyInstance", destroy_instance),
        OURS("vkEnumerateDeviceExtensionProperties", list_extensions),
        OURS("vkCreateDevice", create_device),
        OURS("vkGetDeviceProcAddr", device_function),
        OURS("vkGetPhysicalDeviceFormatProperties2", format_properties),
        OURS("vkGetPhysicalDeviceFormatProperties2KHR", format_properties),
        OURS("vkGetPhysicalDeviceImageFormatProperties2", image_properties),
        OURS("vkGetPhysicalDeviceImageFormatProperties2KHR", image_properties),
        OURS("vkCreateImage", create_image),
        OURS("vkDestroyImage", destroy_image),
        OURS("vkGetMemoryFdPropertiesKHR", fd_properties),
        OURS("vkAllocateMemory", allocate),
        OURS("vkFreeMemory", release),
        OURS("vkBindImageMemory", bind),
        OURS("vkCmdPipelineBarrier", barrier),
        OURS("vkCmdCopyImageToBuffer", copy),
    };
    const auto found = functions.find(name);
    return found == functions.end() ? nullptr : found->second;
}

}  // namespace

// What the loader asks of a driver.
extern "C" {

VKAPI_ATTR VkResult VKAPI_CALL vk_icdNegotiateLoaderICDInterfaceVersion(uint32_t* version) {
    const auto real =
        exported<PFN_vkNegotiateLoaderICDInterfaceVersion>("vk_icdNegotiateLoaderICDInterfaceVersion");
    return real ? real(version) : VK_ERROR_INCOMPATIBLE_DRIVER;
}

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vk_icdGetInstanceProcAddr(VkInstance owner, const char* name) {
    const PFN_vkVoidFunction own = ours(name);
    return own ? own : of_instance(owner, name);
}

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vk_icdGetPhysicalDeviceProcAddr(VkInstance owner, const char* name) {
    const PFN_vkVoidFunction own = ours(name);
    static const auto real = exported<PFN_vkGetInstanceProcAddr>("vk_icdGetPhysicalDeviceProcAddr");
    return own || !real ? own : real(owner, name);
}
}
