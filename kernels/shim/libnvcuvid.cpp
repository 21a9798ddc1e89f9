// A decoder that is not there: the functions of libnvcuvid.so that libav calls, without decoding.
//
// A file `pictures` beside the library has coded pictures and what they decode to; what libav hands over
// is looked up in it. So libav's parsers and its own side of NVDEC run as they do on a device, and what
// comes out is right, or refused. Records of the file: four numbers of 32 bits, little endian (coded bytes,
// width, height, bytes a sample), the coded bytes, the rows of luma, the rows of interleaved chroma.
// Has no more surfaces than it was asked for, mapped ones included.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fstream>
#include <iterator>
#include <map>
#include <vector>

#include "driver.hpp"

#include <ffnvcodec/dynlink_cuviddec.h>

const unsigned PITCH = 256;

struct Record {
    std::vector<char> coded;
    uint32_t width, height, sample_bytes;
    const char* planes;
};

struct Decoder {
    uint32_t width, height, sample_bytes;
    unsigned surfaces, mapped_max, mapped;
    std::map<int, const Record*> pictures;
    const Record* last;
};

static size_t plane_bytes(const Record& record) {
    size_t halved = (record.width + 1) / 2 * 2 * ((record.height + 1) / 2);
    return record.sample_bytes * (record.width * record.height + halved);
}

static const std::vector<Record>& records() {
    static std::vector<char> bytes;
    static std::vector<Record> records;
    if (!bytes.empty()) return records;
    std::ifstream file(beside("pictures"), std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    const char* at = bytes.data();
    const char* end = at + bytes.size();
    while (end - at >= 16) {
        uint32_t head[4];
        memcpy(head, at, sizeof head);
        at += sizeof head;
        Record record = {{at, at + head[0]}, head[1], head[2], head[3], at + head[0]};
        at += head[0] + plane_bytes(record);
        records.push_back(record);
    }
    return records;
}

static bool show_the_same(const Record& one, const Record& other) {
    size_t bytes = plane_bytes(one);
    return bytes == plane_bytes(other) && memcmp(one.planes, other.planes, bytes) == 0;
}

// A record that the picture's last slice is in; null where there is none. Of some that show different things
// it is the next behind `last`, which the same decoder was given before.
static const Record* look_up(const CUVIDPICPARAMS* picture, const Record* last) {
    unsigned slices = picture->nNumSlices;
    unsigned start = slices > 0 ? picture->pSliceDataOffsets[slices - 1] : 0;
    const unsigned char* slice = picture->pBitstreamData + start;
    size_t bytes = picture->nBitstreamDataLen - start;
    // A start code that libav put there, where the file has a length.
    if (bytes > 3 && slice[0] == 0 && slice[1] == 0 && slice[2] == 1) {
        slice += 3;
        bytes -= 3;
    }
    const Record* found = nullptr;
    bool is_open = false;
    for (const Record& record : records()) {
        if (memmem(record.coded.data(), record.coded.size(), slice, bytes) == nullptr) continue;
        if (last != nullptr && &record > last) return &record;
        is_open |= found != nullptr && !show_the_same(*found, record);
        found = &record;
    }
    if (found == nullptr || is_open) {
        const char* what = is_open ? "different pictures have" : "no picture has";
        fprintf(stderr, "libnvcuvid: %s this slice of %zu bytes\n", what, bytes);
        return nullptr;
    }
    return found;
}

// Writes rows of `bytes` each, `pitch` apart.
static const char* put(uint64_t to, unsigned pitch, const char* from, size_t bytes, size_t rows) {
    for (size_t row = 0; row < rows; row++, from += bytes) {
        memcpy(reinterpret_cast<char*>(to) + row * pitch, from, bytes);
    }
    return from;
}

extern "C" {

Result cuvidGetDecoderCaps(CUVIDDECODECAPS* caps) {
    caps->bIsSupported = caps->eChromaFormat == cudaVideoChromaFormat_420 && caps->nBitDepthMinus8 <= 2;
    caps->nOutputFormatMask = caps->nBitDepthMinus8 ? 1 << cudaVideoSurfaceFormat_P016
                                                    : 1 << cudaVideoSurfaceFormat_NV12;
    caps->nMaxWidth = caps->nMaxHeight = 8192;
    caps->nMaxMBCount = 8192 * 8192 / 256;
    caps->nMinWidth = caps->nMinHeight = 16;
    return SUCCESS;
}

Result cuvidCreateDecoder(void** decoder, CUVIDDECODECREATEINFO* wanted) {
    Guard guard(driver_lock);
    if (lost) return LAUNCH_FAILED;
    Decoder* made = new Decoder();
    made->width = static_cast<uint32_t>(wanted->ulTargetWidth);
    made->height = static_cast<uint32_t>(wanted->ulTargetHeight);
    made->sample_bytes = wanted->OutputFormat == cudaVideoSurfaceFormat_P016 ? 2 : 1;
    made->surfaces = static_cast<unsigned>(wanted->ulNumDecodeSurfaces);
    made->mapped_max = static_cast<unsigned>(wanted->ulNumOutputSurfaces);
    *decoder = made;
    return SUCCESS;
}

Result cuvidDestroyDecoder(void* decoder) {
    delete static_cast<Decoder*>(decoder);
    return SUCCESS;
}

Result cuvidDecodePicture(void* decoder, CUVIDPICPARAMS* picture) {
    Guard guard(driver_lock);
    static long long decodes;
    if (decodes++ >= setting("SHIM_DECODES", 1ll << 40)) lost = true;
    if (lost) return LAUNCH_FAILED;
    Decoder* of = static_cast<Decoder*>(decoder);
    const Record* record = of->last = look_up(picture, of->last);
    bool is_known = record != nullptr && record->sample_bytes == of->sample_bytes &&
                    record->width <= of->width && record->height <= of->height;
    if (!is_known || static_cast<unsigned>(picture->CurrPicIdx) >= of->surfaces) return INVALID_VALUE;
    of->pictures[picture->CurrPicIdx] = record;
    return SUCCESS;
}

Result cuvidMapVideoFrame64(void* decoder, int index, uint64_t* address, unsigned* pitch,
                            CUVIDPROCPARAMS*) {
    Guard guard(driver_lock);
    if (lost) return LAUNCH_FAILED;
    Decoder* of = static_cast<Decoder*>(decoder);
    if (of->pictures.count(index) == 0 || of->mapped >= of->mapped_max) return INVALID_VALUE;
    const Record* record = of->pictures[index];
    *pitch = (of->width * of->sample_bytes + PITCH - 1) / PITCH * PITCH;
    Result taken = cuMemAlloc_v2(address, size_t(*pitch) * (of->height + of->height / 2));
    if (taken != SUCCESS) return taken;
    size_t row = record->width * record->sample_bytes;
    size_t pairs = (record->width + 1) / 2 * 2 * record->sample_bytes;
    const char* chroma = put(*address, *pitch, record->planes, row, record->height);
    put(*address + size_t(*pitch) * of->height, *pitch, chroma, pairs, (record->height + 1) / 2);
    of->mapped++;
    return SUCCESS;
}

Result cuvidUnmapVideoFrame64(void* decoder, uint64_t address) {
    Guard guard(driver_lock);
    static_cast<Decoder*>(decoder)->mapped--;
    return cuMemFree_v2(address);
}

// Functions that libav looks up and does not call here.
#define REFUSED(name) \
    Result name() { return NOT_SUPPORTED; }
REFUSED(cuvidGetDecodeStatus)
REFUSED(cuvidReconfigureDecoder)
REFUSED(cuvidCtxLockCreate)
REFUSED(cuvidCtxLockDestroy)
REFUSED(cuvidCtxLock)
REFUSED(cuvidCtxUnlock)
REFUSED(cuvidCreateVideoSource)
REFUSED(cuvidCreateVideoSourceW)
REFUSED(cuvidDestroyVideoSource)
REFUSED(cuvidSetVideoSourceState)
REFUSED(cuvidGetVideoSourceState)
REFUSED(cuvidGetSourceVideoFormat)
REFUSED(cuvidGetSourceAudioFormat)
REFUSED(cuvidCreateVideoParser)
REFUSED(cuvidParseVideoData)
REFUSED(cuvidDestroyVideoParser)

}  // extern "C"
