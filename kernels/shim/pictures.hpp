// What decoders that are not there know: a file `pictures` beside the library has coded pictures and what
// they decode to.
//
// So libav's parsers and its own side of a device run as they do with one, and what comes out is right,
// or refused. Records of the file: four numbers of 32 bits, little endian (coded bytes, width, height, bytes
// a sample), the coded bytes, the rows of luma, the rows of interleaved chroma.
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <fstream>
#include <iterator>
#include <vector>

#include "settings.hpp"

struct Record {
    std::vector<char> coded;
    uint32_t width, height, sample_bytes;
    const char* planes;
};

static inline size_t plane_bytes(const Record& record) {
    size_t halved = (record.width + 1) / 2 * 2 * ((record.height + 1) / 2);
    return record.sample_bytes * (record.width * record.height + halved);
}

static inline const std::vector<Record>& records() {
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

static inline bool show_the_same(const Record& one, const Record& other) {
    size_t bytes = plane_bytes(one);
    return bytes == plane_bytes(other) && memcmp(one.planes, other.planes, bytes) == 0;
}

// A record that this slice is in; null where there is none. Of some that show different things it is the next
// behind `last`, which the same decoder was given before.
static inline const Record* look_up(const void* slice, size_t bytes, const Record* last) {
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
        fprintf(stderr, "shim: %s this slice of %zu bytes\n", what, bytes);
        return nullptr;
    }
    return found;
}

// Writes rows of `bytes` each, `pitch` apart; what follows them at `from`.
static inline const char* put(void* to, unsigned pitch, const char* from, size_t bytes, size_t rows) {
    for (size_t row = 0; row < rows; row++, from += bytes) {
        memcpy(static_cast<char*>(to) + row * pitch, from, bytes);
    }
    return from;
}

// Writes what a picture shows: luma, and its chroma behind `chroma_at` bytes.
static inline void show(const Record& record, void* to, unsigned pitch, size_t chroma_at) {
    size_t row = record.width * record.sample_bytes;
    size_t pairs = (record.width + 1) / 2 * 2 * record.sample_bytes;
    const char* chroma = put(to, pitch, record.planes, row, record.height);
    put(static_cast<char*>(to) + chroma_at, pitch, chroma, pairs, (record.height + 1) / 2);
}
