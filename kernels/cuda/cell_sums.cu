// Sums of the samples of every cell of a batch of pictures: one warp a cell and picture.
//
// Reads the surfaces and writes the sums whose words gate::device lays down; the cells are those
// of gate::cell_span. Four bytes are added at a time: bytes past a cell's borders are masked off.
// Surfaces and their rows start at multiples of four bytes. Where __CUDACC__ is not defined, the
// includer gives the built-ins of CUDA and the three functions below.

#if defined(__CUDACC__)
#define LOAD(address) __ldg(reinterpret_cast<const u32*>(address))
#endif

typedef unsigned int u32;
typedef unsigned long long u64;

struct Surface {
    u32 address_low;
    u32 address_high;
    u32 stride;
    u32 width;
    u32 height;
    u32 format;
};

// The same as in gate::cells and gate::device.
enum : u32 {
    LUMA_COLUMNS = 64,
    LUMA_ROWS = 40,
    CHROMA_COLUMNS = 32,
    CHROMA_ROWS = 20,
    LUMA_CELLS = LUMA_COLUMNS * LUMA_ROWS,
    CHROMA_CELLS = CHROMA_COLUMNS * CHROMA_ROWS,
    CELLS = LUMA_CELLS + 2 * CHROMA_CELLS,
    SUMS = 2 * LUMA_CELLS + 2 * CHROMA_CELLS,
    WIDE = 1,
    PAIR = 2,
    SHIFT_AT = 8,
    THREADS = 32,  // of a warp
};

#if defined(__CUDACC__)
// The sum of the products of the four bytes of `a` and of `b`, and `c`. The instruction is there
// since sm_61; NVRTC 12.0 does not know the intrinsic of that name.
__device__ __forceinline__ u32 dot4(u32 a, u32 b, u32 c) {
    u32 sum;
    asm("dp4a.u32.u32 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
    return sum;
}
#endif

struct Span {
    u32 start;
    u32 end;
};

// The samples of a side that a cell covers.
__device__ __forceinline__ Span cell_span(u32 index, u32 cells, u32 length) {
    u32 start = index * length / cells;
    u32 end = (index + 1) * length / cells;
    return {start, end > start ? end : start + 1};
}

// The eight-bit values of a word's samples, each in the byte where its sample starts.
__device__ __forceinline__ u32 values(u32 word, u32 format) {
    if (!(format & WIDE)) return word;
    u32 shift = format >> SHIFT_AT;
    u32 low = ((word & 0xffff) >> shift) & 0xff;
    u32 high = ((word >> 16) >> shift) & 0xff;
    return low | high << 16;
}

// A one in each byte of a word that belongs to the first plane.
__device__ __forceinline__ u32 first_bytes(u32 format) {
    switch (format & (WIDE | PAIR)) {
        case 0: return 0x01010101;
        case WIDE | PAIR: return 0x00000001;
        default: return 0x00010001;
    }
}

// The same for the second plane.
__device__ __forceinline__ u32 second_bytes(u32 format) {
    switch (format & (WIDE | PAIR)) {
        case PAIR: return 0x01000100;
        case WIDE | PAIR: return 0x00010000;
        default: return 0;
    }
}

struct Totals {
    u32 first;
    u32 second;
};

// One thread's share of a cell: the sum, and the sum of squares or of the second plane.
__device__ __forceinline__ Totals add_up(const Surface& surface, bool squares, Span across,
                                         Span down, u32 thread) {
    u32 scale = (surface.format & WIDE) + (surface.format & PAIR) / PAIR;
    u32 start = across.start << scale;
    u32 end = across.end << scale;
    u32 words = (end + 3) / 4 - start / 4;
    u32 head = 0xffffffffu << (8 * (start & 3));
    u32 tail = 0xffffffffu >> (8 * ((4 - (end & 3)) & 3));
    u32 ours = first_bytes(surface.format);
    u32 theirs = second_bytes(surface.format);
    u64 base = (static_cast<u64>(surface.address_high) << 32 | surface.address_low) +
               (start & ~3u) + static_cast<u64>(down.start) * surface.stride;

    // The thread's place moves on by THREADS words at a time: no division in the loop.
    u32 rows_on = THREADS / words;
    u32 words_on = THREADS % words;
    u32 row = thread / words;
    u32 column = thread % words;
    u32 rows = down.end - down.start;
    Totals total = {0, 0};
    while (row < rows) {
        u32 mask = 0xffffffffu;
        if (column == 0) mask &= head;
        if (column == words - 1) mask &= tail;
        u32 word = LOAD(base + static_cast<u64>(row) * surface.stride + 4 * column);
        u32 value = values(word & mask, surface.format);
        total.first = dot4(value, ours, total.first);
        total.second = dot4(value, squares ? value : theirs, total.second);
        row += rows_on;
        column += words_on;
        if (column >= words) {
            column -= words;
            row += 1;
        }
    }
    return total;
}

// blockIdx.y is the picture; the warps of a row of blocks are its cells.
extern "C" __global__ void cell_sums(const Surface* surfaces, u32* sums) {
    u32 thread = threadIdx.x % THREADS;
    u32 slot = (blockIdx.x * blockDim.x + threadIdx.x) / THREADS;
    if (slot >= CELLS) return;
    bool luma = slot < LUMA_CELLS;
    u32 chroma = slot - LUMA_CELLS;
    u32 which = luma ? 0 : 1 + chroma / CHROMA_CELLS;
    u32 cell = luma ? slot : chroma % CHROMA_CELLS;
    u32 columns = luma ? LUMA_COLUMNS : CHROMA_COLUMNS;
    u32 rows = luma ? LUMA_ROWS : CHROMA_ROWS;
    const Surface* own = surfaces + 3 * blockIdx.y;
    Surface surface = own[which];
    bool pair = own[1].format & PAIR;
    if (which == 2 && pair) return;

    Totals total = {0, 0};
    if (surface.width != 0) {
        Span across = cell_span(cell % columns, columns, surface.width);
        Span down = cell_span(cell / columns, rows, surface.height);
        total = add_up(surface, luma, across, down, thread);
    }
    // No sum of a cell reaches 2^32, so that neither half carries into the other.
    u64 both = static_cast<u64>(total.second) << 32 | total.first;
    for (u32 apart = THREADS / 2; apart > 0; apart /= 2) {
        both += __shfl_xor_sync(0xffffffffu, both, apart);
    }
    if (thread != 0) return;
    u32 first = static_cast<u32>(both);
    u32 second = static_cast<u32>(both >> 32);
    u32* out = sums + static_cast<u64>(blockIdx.y) * SUMS;
    if (luma) {
        out[cell] = first;
        out[LUMA_CELLS + cell] = second;
    } else {
        out[2 * LUMA_CELLS + chroma] = first;
        if (pair) out[2 * LUMA_CELLS + chroma + CHROMA_CELLS] = second;
    }
}
