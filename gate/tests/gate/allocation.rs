//! Counts the allocations of the thread under test only, because other tests run concurrently.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

use gate::{
    AHEAD, CpuBackend, FrameMeta, Gate, GateConfig, Loops, MeasureBackend, SignalWindow,
    conformance::{Fill, TestPicture},
};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system allocator unchanged; the counter is a plain cell without
// a destructor, so reading it neither allocates nor outlives the thread.
#[expect(unsafe_code, reason = "a global allocator is an unsafe trait")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `alloc` above with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_frame_costs_no_allocation_after_warm_up() {
    // Cuts, flashes and noise, so that every rule is exercised.
    let frames: Vec<_> = (0..8)
        .map(|n| {
            let fill = if n % 3 == 0 { Fill::Ramp } else { Fill::Random(n / 2) };
            TestPicture { fill, ..TestPicture::new(333, 217) }.frame()
        })
        .collect();
    let mut measurer = CpuBackend::new();
    let mut window = SignalWindow::new(AHEAD);
    let (mut gate, mut loops) = (Gate::new(GateConfig::default()), Loops::default());
    let mut measured = Vec::new();
    let mut cuts = 0;
    let mut before = 0;
    for index in 0..200u64 {
        if index == 20 {
            before = ALLOCATIONS.get();
        }
        measured.clear();
        let frame = &frames[index as usize / 12 % frames.len()];
        measurer.measure(std::slice::from_ref(frame), &mut measured).expect("measurable");
        let pts_ms = 33 * index as i64;
        let stamp = FrameMeta { frame_index: index, source_frame_index: index, pts_ms };
        window.push(stamp, &measured[0]);
        while let Some(signal) = window.poll() {
            loops.push(&signal);
            cuts += u64::from(gate.offer(&signal).selected);
        }
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);
    assert!(cuts > 10, "{cuts} frames selected");
}
