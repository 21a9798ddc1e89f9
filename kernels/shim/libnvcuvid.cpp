// A decoder that is not there: the functions of libnvcuvid.so that libav calls, without decoding.
//
// What libav hands over is looked up, see pictures.hpp. Has no more surfaces than it was asked for, mapped
// ones included.

#include <map>

#include "driver.hpp"
#include "pictures.hpp"

#include <ffnvcodec/dynlink_cuviddec.h>

const unsigned PITCH = 256;

struct Decoder {
    uint32_t width, height, sample_bytes;
    unsigned surfaces, mapped_max, mapped;
    std::map<int, const Record*> pictures;
    const Record* last;
};

// By the picture's last slice.
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
    return look_up(slice, bytes, last);
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
    show(*record, reinterpret_cast<void*>(*address), *pitch, size_t(*pitch) * of->height);
    of->mapped++;
    return SUCCESS;
}

Result cuvidUnmapVideoFrame64(void* decoder, uint64_t address) {
    Guard guard(driver_lock);
    static_cast<Decoder*>(decoder)->mapped--;
    return cuMemFree_v2(address);
}

// What libav wants to find and does not call here.
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
