// Sums of the samples of every cell of a batch of pictures: one workgroup a cell and picture.
//
// Reads the surfaces and writes the sums whose words gate::device lays down; the cells are those
// of gate::cell_span. Four bytes are added at a time: bytes past a cell's borders are masked off.

struct Surface {
    address: u32,
    address_high: u32,
    stride: u32,
    width: u32,
    height: u32,
    format: u32,
}

// The same as in gate::cells and gate::device.
const LUMA_COLUMNS = 64u;
const LUMA_ROWS = 40u;
const CHROMA_COLUMNS = 32u;
const CHROMA_ROWS = 20u;
const LUMA_CELLS = LUMA_COLUMNS * LUMA_ROWS;
const CHROMA_CELLS = CHROMA_COLUMNS * CHROMA_ROWS;
const SUMS = 2u * LUMA_CELLS + 2u * CHROMA_CELLS;
const WIDE = 1u;
const PAIR = 2u;
const SHIFT_AT = 8u;

const THREADS = 64u;

@group(0) @binding(0) var<storage, read> samples: array<u32>;
@group(0) @binding(1) var<storage, read> surfaces: array<Surface>;
@group(0) @binding(2) var<storage, read_write> sums: array<u32>;

var<workgroup> first_total: atomic<u32>;
var<workgroup> second_total: atomic<u32>;

// The samples of a side that a cell covers: start and end.
fn cell_span(index: u32, cells: u32, length: u32) -> vec2<u32> {
    let start = index * length / cells;
    return vec2<u32>(start, max((index + 1u) * length / cells, start + 1u));
}

// Work of a workgroup: surface of the picture, cell, columns and rows of its grid.
struct Work {
    surface: u32,
    cell: u32,
    columns: u32,
    rows: u32,
}

fn work_of(slot: u32) -> Work {
    if slot < LUMA_CELLS {
        return Work(0u, slot, LUMA_COLUMNS, LUMA_ROWS);
    }
    let chroma = slot - LUMA_CELLS;
    return Work(1u + chroma / CHROMA_CELLS, chroma % CHROMA_CELLS, CHROMA_COLUMNS, CHROMA_ROWS);
}

// The eight-bit values of a word's samples, each in the byte where its sample starts.
fn values(word: u32, format: u32) -> u32 {
    if (format & WIDE) == 0u {
        return word;
    }
    let shift = format >> SHIFT_AT;
    let low = ((word & 0xffffu) >> shift) & 0xffu;
    let high = ((word >> 16u) >> shift) & 0xffu;
    return low | (high << 16u);
}

// Bytes of a word that belong to the first plane; the others are the second's.
fn first_bytes(format: u32) -> u32 {
    switch format & (WIDE | PAIR) {
        case 0u: { return 0x01010101u; }
        case 2u: { return 0x00010001u; }
        case 3u: { return 0x00000001u; }
        default: { return 0x00010001u; }
    }
}

fn second_bytes(format: u32) -> u32 {
    switch format & (WIDE | PAIR) {
        case 2u: { return 0x01000100u; }
        case 3u: { return 0x00010000u; }
        default: { return 0u; }
    }
}

// One thread's share of a cell: the sum, and the sum of squares or of the second plane.
fn add_up(surface: Surface, work: Work, thread: u32) -> vec2<u32> {
    let across = cell_span(work.cell % work.columns, work.columns, surface.width);
    let down = cell_span(work.cell / work.columns, work.rows, surface.height);
    let is_wide = surface.format & WIDE;
    let is_pair = (surface.format & PAIR) / PAIR;
    let start = across.x << (is_wide + is_pair);
    let end = across.y << (is_wide + is_pair);
    let words = (end + 3u) / 4u - start / 4u;
    let head = 0xffffffffu << (8u * (start & 3u));
    let tail = 0xffffffffu >> (8u * ((4u - (end & 3u)) & 3u));
    let ours = first_bytes(surface.format);
    let theirs = second_bytes(surface.format);

    var total = vec2<u32>(0u, 0u);
    let count = words * (down.y - down.x);
    for (var at = thread; at < count; at += THREADS) {
        let column = at % words;
        let row = surface.address / 4u + (down.x + at / words) * (surface.stride / 4u);
        var mask = 0xffffffffu;
        if column == 0u { mask &= head; }
        if column == words - 1u { mask &= tail; }
        let word = values(samples[row + start / 4u + column] & mask, surface.format);
        total.x += dot4U8Packed(word, ours);
        let other = select(theirs, word, work.surface == 0u);
        total.y += dot4U8Packed(word, other);
    }
    return total;
}

@compute @workgroup_size(THREADS)
fn cell_sums(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let work = work_of(group.x);
    let surface = surfaces[3u * group.y + work.surface];
    if surface.width != 0u {
        let share = add_up(surface, work, thread);
        atomicAdd(&first_total, share.x);
        atomicAdd(&second_total, share.y);
    }
    workgroupBarrier();
    if thread != 0u {
        return;
    }
    let first = atomicLoad(&first_total);
    let second = atomicLoad(&second_total);
    let base = group.y * SUMS;
    let chroma = base + 2u * LUMA_CELLS + work.cell;
    if work.surface == 0u {
        sums[base + work.cell] = first;
        sums[base + LUMA_CELLS + work.cell] = second;
    } else if work.surface == 1u {
        sums[chroma] = first;
        if (surface.format & PAIR) != 0u {
            sums[chroma + CHROMA_CELLS] = second;
        }
    } else if (surfaces[3u * group.y + 1u].format & PAIR) == 0u {
        sums[chroma + CHROMA_CELLS] = first;
    }
}
