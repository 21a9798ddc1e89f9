// A driver of libva that is not there: what libav asks of VAAPI to decode, without decoding.
//
// The file is libva-drm.so.2, whose display needs no render node, and the driver that the real libva opens;
// pictures are looked up, see pictures.hpp. Surfaces are in one file of memory, which is exported as if it were
// a dma-buf. Settings: SHIM_DEVICES, SHIM_DECODES and SHIM_FETCHES (how many succeed before the device is
// lost), SHIM_EXPORTS (how many succeed; the device stays).

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include <va/va_backend.h>
#include <va/va_drmcommon.h>

#include "../../kernels/shim/pictures.hpp"

const unsigned PITCH = 256;
const size_t PAGE = 4096;
// Of all surfaces; only what is written takes memory.
const size_t MEMORY_BYTES = size_t(1) << 30;

struct Surface {
    unsigned width, height, sample_bytes;
    // In the device's memory.
    size_t start;

    unsigned pitch() const { return (width * sample_bytes + PITCH - 1) / PITCH * PITCH; }
    unsigned chroma_at() const { return pitch() * height; }
    size_t bytes() const { return size_t(pitch()) * (height + (height + 1) / 2); }
};

struct Buffer {
    VABufferType type;
    std::vector<char> bytes;
};

struct Context {
    VASurfaceID target;
    // The data of the picture's last slice.
    std::vector<char> slice;
    const Record* last;
};

// A profile, and the pixels of its surfaces.
struct Config {
    VAProfile profile;
    std::vector<int> formats;
};
const Config CONFIGS[] = {
    {VAProfileH264ConstrainedBaseline, {VA_FOURCC_NV12}},
    {VAProfileH264Main, {VA_FOURCC_NV12}},
    {VAProfileH264High, {VA_FOURCC_NV12}},
    {VAProfileHEVCMain, {VA_FOURCC_NV12}},
    {VAProfileHEVCMain10, {VA_FOURCC_P010}},
    {VAProfileVP8Version0_3, {VA_FOURCC_NV12}},
    {VAProfileVP9Profile0, {VA_FOURCC_NV12}},
    {VAProfileVP9Profile2, {VA_FOURCC_P010}},
    {VAProfileAV1Profile0, {VA_FOURCC_NV12, VA_FOURCC_P010}},
};
const int CONFIG_COUNT = sizeof CONFIGS / sizeof *CONFIGS;

// Of drm_fourcc.h: one plane's samples, or pairs of them.
constexpr uint32_t fourcc(char a, char b, char c, char d) {
    return uint32_t(a) | uint32_t(b) << 8 | uint32_t(c) << 16 | uint32_t(d) << 24;
}
const uint32_t DRM_R8 = fourcc('R', '8', ' ', ' '), DRM_GR88 = fourcc('G', 'R', '8', '8');
const uint32_t DRM_R16 = fourcc('R', '1', '6', ' '), DRM_GR1616 = fourcc('G', 'R', '3', '2');

// All state of the driver: decoders are on threads of their own.
static std::mutex driver_lock;
typedef std::lock_guard<std::mutex> Guard;
static unsigned next_id = 1;
static std::map<VASurfaceID, Surface> surfaces;
static std::map<VABufferID, Buffer> buffers;
static std::map<VAContextID, Context> contexts;
static bool lost;
static long long decodes, fetches, exported;
// More was done than a setting has succeed, counted while there is one.
static bool is_over(const char* name, long long& count) {
    long long most = setting(name, -1);
    return most >= 0 && count++ >= most;
}

// The device's memory.
static int memory_fd = -1;
static char* memory;
// Pieces that are free, by where they start.
static std::map<size_t, size_t> spare;

static bool make_memory() {
    if (memory != nullptr) return true;
    memory_fd = memfd_create("surfaces", MFD_CLOEXEC);
    if (memory_fd < 0 || ftruncate(memory_fd, MEMORY_BYTES) != 0) return false;
    void* mapped = mmap(nullptr, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd, 0);
    if (mapped == MAP_FAILED) return false;
    memory = static_cast<char*>(mapped);
    spare[0] = MEMORY_BYTES;
    return true;
}

// Takes the first piece that is large enough.
static bool take(size_t bytes, size_t* start) {
    bytes = (bytes + PAGE - 1) / PAGE * PAGE;
    for (auto piece = spare.begin(); piece != spare.end(); piece++) {
        if (piece->second < bytes) continue;
        *start = piece->first;
        size_t left = piece->second - bytes;
        spare.erase(piece);
        if (left > 0) spare[*start + bytes] = left;
        return true;
    }
    return false;
}

static void give_back(const Surface& surface) {
    spare[surface.start] = (surface.bytes() + PAGE - 1) / PAGE * PAGE;
}

template <typename... Arguments>
static VAStatus refuse(Arguments...) {
    return VA_STATUS_ERROR_UNIMPLEMENTED;
}

template <typename... Arguments>
static VAStatus succeed(Arguments...) {
    return VA_STATUS_SUCCESS;
}

static VAStatus profiles(VADriverContextP, VAProfile* list, int* count) {
    for (const Config& config : CONFIGS) *list++ = config.profile;
    *count = CONFIG_COUNT;
    return VA_STATUS_SUCCESS;
}

static VAStatus entrypoints(VADriverContextP, VAProfile, VAEntrypoint* list, int* count) {
    *list = VAEntrypointVLD;
    *count = 1;
    return VA_STATUS_SUCCESS;
}

// A configuration's number is that of its profile in the list, from 1.
static VAStatus create_config(VADriverContextP, VAProfile profile, VAEntrypoint, VAConfigAttrib*, int,
                              VAConfigID* made) {
    for (int at = 0; at < CONFIG_COUNT; at++) {
        if (CONFIGS[at].profile != profile) continue;
        *made = static_cast<VAConfigID>(at + 1);
        return VA_STATUS_SUCCESS;
    }
    return VA_STATUS_ERROR_UNSUPPORTED_PROFILE;
}

static VAStatus surface_attributes(VADriverContextP, VAConfigID config, VASurfaceAttrib* list,
                                   unsigned* count) {
    std::vector<std::pair<VASurfaceAttribType, int>> told = {
        {VASurfaceAttribMinWidth, 16},
        {VASurfaceAttribMinHeight, 16},
        {VASurfaceAttribMaxWidth, 8192},
        {VASurfaceAttribMaxHeight, 8192},
    };
    for (int format : CONFIGS[config - 1].formats) told.push_back({VASurfaceAttribPixelFormat, format});
    *count = static_cast<unsigned>(told.size());
    if (list == nullptr) return VA_STATUS_SUCCESS;
    for (const auto& [type, value] : told) {
        *list = {};
        list->type = type;
        list->flags = VA_SURFACE_ATTRIB_GETTABLE | VA_SURFACE_ATTRIB_SETTABLE;
        list->value.type = VAGenericValueTypeInteger;
        list->value.value.i = value;
        list++;
    }
    return VA_STATUS_SUCCESS;
}

static VAStatus create_surfaces(VADriverContextP, unsigned format, unsigned width, unsigned height,
                                VASurfaceID* made, unsigned count, VASurfaceAttrib*, unsigned) {
    Guard guard(driver_lock);
    if (lost) return VA_STATUS_ERROR_ALLOCATION_FAILED;
    for (unsigned at = 0; at < count; at++) {
        Surface surface = {width, height, format == VA_RT_FORMAT_YUV420_10 ? 2u : 1u, 0};
        if (!take(surface.bytes(), &surface.start)) return VA_STATUS_ERROR_ALLOCATION_FAILED;
        made[at] = next_id++;
        surfaces[made[at]] = surface;
    }
    return VA_STATUS_SUCCESS;
}

static VAStatus destroy_surfaces(VADriverContextP, VASurfaceID* list, int count) {
    Guard guard(driver_lock);
    for (int at = 0; at < count; at++) {
        if (surfaces.count(list[at]) == 0) return VA_STATUS_ERROR_INVALID_SURFACE;
        give_back(surfaces[list[at]]);
        surfaces.erase(list[at]);
    }
    return VA_STATUS_SUCCESS;
}

static VAStatus create_context(VADriverContextP, VAConfigID, int, int, int, VASurfaceID*, int,
                               VAContextID* made) {
    Guard guard(driver_lock);
    if (lost) return VA_STATUS_ERROR_ALLOCATION_FAILED;
    *made = next_id++;
    contexts[*made] = {VA_INVALID_SURFACE, {}, nullptr};
    return VA_STATUS_SUCCESS;
}

static VAStatus destroy_context(VADriverContextP, VAContextID context) {
    Guard guard(driver_lock);
    return contexts.erase(context) == 1 ? VA_STATUS_SUCCESS : VA_STATUS_ERROR_INVALID_CONTEXT;
}

static VABufferID keep(VABufferType type, std::vector<char> bytes) {
    buffers[next_id] = {type, std::move(bytes)};
    return next_id++;
}

static VAStatus create_buffer(VADriverContextP, VAContextID, VABufferType type, unsigned bytes,
                              unsigned count, void* data, VABufferID* made) {
    Guard guard(driver_lock);
    std::vector<char> kept(size_t(bytes) * count);
    if (data != nullptr) memcpy(kept.data(), data, kept.size());
    *made = keep(type, std::move(kept));
    return VA_STATUS_SUCCESS;
}

static VAStatus map_buffer(VADriverContextP, VABufferID buffer, void** address) {
    Guard guard(driver_lock);
    if (buffers.count(buffer) == 0) return VA_STATUS_ERROR_INVALID_BUFFER;
    *address = buffers[buffer].bytes.data();
    return VA_STATUS_SUCCESS;
}

static VAStatus destroy_buffer(VADriverContextP, VABufferID buffer) {
    Guard guard(driver_lock);
    return buffers.erase(buffer) == 1 ? VA_STATUS_SUCCESS : VA_STATUS_ERROR_INVALID_BUFFER;
}

static VAStatus begin_picture(VADriverContextP, VAContextID context, VASurfaceID target) {
    Guard guard(driver_lock);
    if (contexts.count(context) == 0) return VA_STATUS_ERROR_INVALID_CONTEXT;
    if (surfaces.count(target) == 0) return VA_STATUS_ERROR_INVALID_SURFACE;
    contexts[context].target = target;
    return VA_STATUS_SUCCESS;
}

static VAStatus render_picture(VADriverContextP, VAContextID context, VABufferID* list, int count) {
    Guard guard(driver_lock);
    for (int at = 0; at < count; at++) {
        if (buffers.count(list[at]) == 0) return VA_STATUS_ERROR_INVALID_BUFFER;
        const Buffer& buffer = buffers[list[at]];
        if (buffer.type == VASliceDataBufferType) contexts[context].slice = buffer.bytes;
    }
    return VA_STATUS_SUCCESS;
}

static VAStatus end_picture(VADriverContextP, VAContextID context) {
    Guard guard(driver_lock);
    if (is_over("SHIM_DECODES", decodes)) lost = true;
    if (lost) return VA_STATUS_ERROR_OPERATION_FAILED;
    Context& of = contexts[context];
    Surface& target = surfaces[of.target];
    of.last = look_up(of.slice.data(), of.slice.size(), of.last);
    bool is_known = of.last != nullptr && of.last->sample_bytes == target.sample_bytes &&
                    of.last->width <= target.width && of.last->height <= target.height;
    if (!is_known) return VA_STATUS_ERROR_DECODING_ERROR;
    show(*of.last, memory + target.start, target.pitch(), target.chroma_at());
    return VA_STATUS_SUCCESS;
}

static VAStatus sync_surface(VADriverContextP, VASurfaceID surface) {
    Guard guard(driver_lock);
    if (lost) return VA_STATUS_ERROR_OPERATION_FAILED;
    return surfaces.count(surface) == 1 ? VA_STATUS_SUCCESS : VA_STATUS_ERROR_INVALID_SURFACE;
}

static VAStatus image_formats(VADriverContextP, VAImageFormat* list, int* count) {
    list[0] = {};
    list[0].fourcc = VA_FOURCC_NV12;
    list[0].byte_order = VA_LSB_FIRST;
    list[0].bits_per_pixel = 12;
    list[1] = list[0];
    list[1].fourcc = VA_FOURCC_P010;
    list[1].bits_per_pixel = 24;
    *count = 2;
    return VA_STATUS_SUCCESS;
}

static VAStatus create_image(VADriverContextP, VAImageFormat* format, int width, int height, VAImage* made) {
    Guard guard(driver_lock);
    unsigned sample_bytes = format->fourcc == VA_FOURCC_P010 ? 2 : 1;
    Surface like = {unsigned(width), unsigned(height), sample_bytes, 0};
    *made = {};
    made->format = *format;
    made->width = static_cast<uint16_t>(width);
    made->height = static_cast<uint16_t>(height);
    made->num_planes = 2;
    made->pitches[0] = made->pitches[1] = like.pitch();
    made->offsets[1] = like.chroma_at();
    made->data_size = static_cast<uint32_t>(like.bytes());
    made->buf = keep(VAImageBufferType, std::vector<char>(made->data_size));
    // As drivers may: an image is known by its samples.
    made->image_id = made->buf;
    return VA_STATUS_SUCCESS;
}

static VAStatus get_image(VADriverContextP, VASurfaceID from, int x, int y, unsigned width, unsigned height,
                          VAImageID image) {
    Guard guard(driver_lock);
    if (is_over("SHIM_FETCHES", fetches)) lost = true;
    if (lost) return VA_STATUS_ERROR_OPERATION_FAILED;
    if (surfaces.count(from) == 0) return VA_STATUS_ERROR_INVALID_SURFACE;
    if (buffers.count(image) == 0) return VA_STATUS_ERROR_INVALID_IMAGE;
    const Surface& surface = surfaces[from];
    std::vector<char>& bytes = buffers[image].bytes;
    bool is_within = x == 0 && y == 0 && width <= surface.width && height <= surface.height;
    Surface like = {width, height, surface.sample_bytes, 0};
    if (!is_within || bytes.size() != like.bytes()) return VA_STATUS_ERROR_INVALID_PARAMETER;
    for (unsigned row = 0; row < height + (height + 1) / 2; row++) {
        unsigned their_row = row < height ? row : surface.height + row - height;
        const char* start = memory + surface.start + size_t(their_row) * surface.pitch();
        size_t copied = std::min(surface.pitch(), like.pitch());
        memcpy(bytes.data() + size_t(row) * like.pitch(), start, copied);
    }
    return VA_STATUS_SUCCESS;
}

// One object, a layer for each plane, as drivers export NV12 and P010.
static VAStatus export_surface(VADriverContextP, VASurfaceID surface, uint32_t kind, uint32_t flags, void* told) {
    Guard guard(driver_lock);
    bool is_wanted = kind == VA_SURFACE_ATTRIB_MEM_TYPE_DRM_PRIME_2 &&
                     (flags & VA_EXPORT_SURFACE_SEPARATE_LAYERS) && !(flags & VA_EXPORT_SURFACE_WRITE_ONLY);
    if (!is_wanted) return VA_STATUS_ERROR_UNSUPPORTED_MEMORY_TYPE;
    if (lost || is_over("SHIM_EXPORTS", exported)) return VA_STATUS_ERROR_OPERATION_FAILED;
    if (surfaces.count(surface) == 0) return VA_STATUS_ERROR_INVALID_SURFACE;
    const Surface& of = surfaces[surface];
    auto* out = static_cast<VADRMPRIMESurfaceDescriptor*>(told);
    *out = {};
    out->fourcc = of.sample_bytes == 2 ? VA_FOURCC_P010 : VA_FOURCC_NV12;
    out->width = of.width;
    out->height = of.height;
    out->num_objects = 1;
    out->objects[0].fd = fcntl(memory_fd, F_DUPFD_CLOEXEC, 0);
    out->objects[0].size = MEMORY_BYTES;
    out->num_layers = 2;
    const uint32_t formats[2][2] = {{DRM_R8, DRM_GR88}, {DRM_R16, DRM_GR1616}};
    for (unsigned at = 0; at < 2; at++) {
        out->layers[at].drm_format = formats[of.sample_bytes - 1][at];
        out->layers[at].num_planes = 1;
        out->layers[at].offset[0] = static_cast<uint32_t>(of.start + at * of.chroma_at());
        out->layers[at].pitch[0] = of.pitch();
    }
    return out->objects[0].fd < 0 ? VA_STATUS_ERROR_ALLOCATION_FAILED : VA_STATUS_SUCCESS;
}

static VADriverVTable functions() {
    VADriverVTable table = {};
    table.vaTerminate = succeed;
    table.vaQueryConfigProfiles = profiles;
    table.vaQueryConfigEntrypoints = entrypoints;
    table.vaGetConfigAttributes = refuse;
    table.vaCreateConfig = create_config;
    table.vaDestroyConfig = succeed;
    table.vaQueryConfigAttributes = refuse;
    table.vaCreateSurfaces = refuse;
    table.vaDestroySurfaces = destroy_surfaces;
    table.vaCreateContext = create_context;
    table.vaDestroyContext = destroy_context;
    table.vaCreateBuffer = create_buffer;
    table.vaBufferSetNumElements = refuse;
    table.vaMapBuffer = map_buffer;
    table.vaUnmapBuffer = succeed;
    table.vaDestroyBuffer = destroy_buffer;
    table.vaBeginPicture = begin_picture;
    table.vaRenderPicture = render_picture;
    table.vaEndPicture = end_picture;
    table.vaSyncSurface = sync_surface;
    table.vaQuerySurfaceStatus = refuse;
    table.vaPutSurface = refuse;
    table.vaQueryImageFormats = image_formats;
    table.vaCreateImage = create_image;
    // As drivers whose surfaces are tiled.
    table.vaDeriveImage = refuse;
    table.vaDestroyImage = destroy_buffer;
    table.vaSetImagePalette = refuse;
    table.vaGetImage = get_image;
    table.vaPutImage = refuse;
    table.vaQuerySubpictureFormats = refuse;
    table.vaCreateSubpicture = refuse;
    table.vaDestroySubpicture = refuse;
    table.vaSetSubpictureImage = refuse;
    table.vaSetSubpictureChromakey = refuse;
    table.vaSetSubpictureGlobalAlpha = refuse;
    table.vaAssociateSubpicture = refuse;
    table.vaDeassociateSubpicture = refuse;
    table.vaQueryDisplayAttributes = refuse;
    table.vaGetDisplayAttributes = refuse;
    table.vaSetDisplayAttributes = refuse;
    table.vaCreateSurfaces2 = create_surfaces;
    table.vaQuerySurfaceAttributes = surface_attributes;
    table.vaExportSurfaceHandle = export_surface;
    return table;
}

static VAStatus candidates(VADisplayContextP, int* count) {
    *count = 1;
    return VA_STATUS_SUCCESS;
}

static VAStatus driver_name(VADisplayContextP, char** name, int) {
    *name = strdup("shim");
    return VA_STATUS_SUCCESS;
}

static int is_valid(VADisplayContextP) { return 1; }

static void destroy(VADisplayContextP display) {
    free(display->pDriverContext);
    free(display);
}

#define INIT_OF(major, minor) __vaDriverInit_##major##_##minor
#define INIT(major, minor) INIT_OF(major, minor)

extern "C" {

// As libva opens a driver of the version that it was built with.
VAStatus INIT(VA_MAJOR_VERSION, VA_MINOR_VERSION)(VADriverContextP context) {
    if (setting("SHIM_DEVICES", 1) == 0) return VA_STATUS_ERROR_HW_BUSY;
    if (!make_memory()) return VA_STATUS_ERROR_ALLOCATION_FAILED;
    context->version_major = VA_MAJOR_VERSION;
    context->version_minor = VA_MINOR_VERSION;
    context->max_profiles = CONFIG_COUNT;
    context->max_entrypoints = context->max_attributes = context->max_subpic_formats = 1;
    context->max_display_attributes = 1;
    context->max_image_formats = 2;
    context->str_vendor = "shim";
    *context->vtable = functions();
    return VA_STATUS_SUCCESS;
}

VADisplay vaGetDisplayDRM(int) {
    auto* display = static_cast<VADisplayContextP>(calloc(1, sizeof(VADisplayContext)));
    auto* driver = static_cast<VADriverContextP>(calloc(1, sizeof(VADriverContext)));
    display->vadpy_magic = VA_DISPLAY_MAGIC;
    display->pDriverContext = driver;
    display->vaIsValid = is_valid;
    display->vaDestroy = destroy;
    display->vaGetNumCandidates = candidates;
    display->vaGetDriverNameByIndex = driver_name;
    driver->pDisplayContext = display;
    driver->display_type = VA_DISPLAY_DRM_RENDERNODES;
    return display;
}

}  // extern "C"
