//! Coded packet, reference counted by libav.

use std::ptr::NonNull;

use ffmpeg_next::ffi;

use super::AvError;
use crate::segment::Payload;

pub(crate) struct Packet(NonNull<ffi::AVPacket>);

// SAFETY: the packet is owned by this value and its bytes are never written once it is shared;
// libav counts references to them atomically.
unsafe impl Send for Packet {}
// SAFETY: as above; everything reachable through `&Packet` only reads.
unsafe impl Sync for Packet {}

impl Packet {
    pub(super) fn empty() -> Result<Packet, AvError> {
        // SAFETY: plain allocation.
        NonNull::new(unsafe { ffi::av_packet_alloc() }).map(Packet).ok_or(AvError::NO_MEMORY)
    }

    /// Makes a packet with a copy of `parts`, one after the other, presented at `pts`.
    pub(crate) fn copied(parts: [&[u8]; 2], pts: i64) -> Result<Packet, AvError> {
        let packet = Packet::empty()?;
        let bytes = parts[0].len() + parts[1].len();
        let size = i32::try_from(bytes).map_err(|_| AvError::NO_MEMORY)?;
        // SAFETY: the packet is empty and ours; libav adds zeroed padding after `size` bytes.
        AvError::check(unsafe { ffi::av_new_packet(packet.as_ptr(), size) })?;
        // SAFETY: `data` was just allocated with `size` bytes and is not shared.
        unsafe {
            let raw = packet.as_ptr();
            let data = std::slice::from_raw_parts_mut((*raw).data, bytes);
            data[..parts[0].len()].copy_from_slice(parts[0]);
            data[parts[0].len()..].copy_from_slice(parts[1]);
            (*raw).pts = pts;
        }
        Ok(packet)
    }

    /// Returns a copy of the packet with `prefix` before its bytes.
    pub(crate) fn with_prefix(&self, prefix: &[u8]) -> Result<Packet, AvError> {
        let packet = Packet::copied([prefix, self.data()], ffi::AV_NOPTS_VALUE)?;
        // SAFETY: both packets are valid; times, flags and side data are copied, bytes are not.
        AvError::check(unsafe { ffi::av_packet_copy_props(packet.as_ptr(), self.as_ptr()) })?;
        Ok(packet)
    }

    pub(super) fn as_ptr(&self) -> *mut ffi::AVPacket {
        self.0.as_ptr()
    }

    fn raw(&self) -> &ffi::AVPacket {
        // SAFETY: valid for as long as self.
        unsafe { self.0.as_ref() }
    }

    pub(crate) fn data(&self) -> &[u8] {
        let raw = self.raw();
        match usize::try_from(raw.size) {
            // SAFETY: libav keeps `size` readable bytes at `data` while the packet lives.
            Ok(size) if !raw.data.is_null() => unsafe {
                std::slice::from_raw_parts(raw.data, size)
            },
            _ => &[],
        }
    }

    pub(crate) fn stream(&self) -> i32 {
        self.raw().stream_index
    }

    pub(crate) fn pts(&self) -> Option<i64> {
        known(self.raw().pts)
    }

    pub(crate) fn dts(&self) -> Option<i64> {
        known(self.raw().dts)
    }

    pub(crate) fn duration(&self) -> i64 {
        self.raw().duration
    }

    /// Adds `by` to the packet's times.
    pub(crate) fn shift(&mut self, by: i64) {
        // SAFETY: the packet is owned by this value alone.
        let raw = unsafe { self.0.as_mut() };
        for time in [&mut raw.pts, &mut raw.dts] {
            if let Some(known) = known(*time) {
                *time = known.saturating_add(by);
            }
        }
    }

    /// Returns true if the container marks the packet as a keyframe.
    pub(crate) fn is_keyframe(&self) -> bool {
        self.raw().flags & ffi::AV_PKT_FLAG_KEY != 0
    }

    /// Returns true if the picture is outside the container's edit list: decoded, never shown.
    pub(crate) fn is_discarded(&self) -> bool {
        self.raw().flags & ffi::AV_PKT_FLAG_DISCARD != 0
    }

    pub(crate) fn is_corrupt(&self) -> bool {
        self.raw().flags & ffi::AV_PKT_FLAG_CORRUPT != 0
    }

    /// Returns true if the packet changes the decoder's configuration out of band.
    pub(crate) fn reconfigures(&self) -> bool {
        use ffi::AVPacketSideDataType::{AV_PKT_DATA_NEW_EXTRADATA, AV_PKT_DATA_PARAM_CHANGE};
        [AV_PKT_DATA_NEW_EXTRADATA, AV_PKT_DATA_PARAM_CHANGE].into_iter().any(|kind| {
            let mut size = 0;
            // SAFETY: only reads the packet's side data table.
            !unsafe { ffi::av_packet_get_side_data(self.as_ptr(), kind, &mut size) }.is_null()
        })
    }
}

impl Payload for Packet {
    fn repeated(&self) -> Option<Packet> {
        let packet = Packet::empty().ok()?;
        // SAFETY: both packets are valid, and this one is empty; libav takes its own reference to the bytes.
        AvError::check(unsafe { ffi::av_packet_ref(packet.as_ptr(), self.as_ptr()) }).ok()?;
        // SAFETY: the packet is owned by this function alone; its bytes are not touched.
        let raw = unsafe { &mut *packet.as_ptr() };
        // The packet whose picture is shown reports the damage.
        raw.flags &= !ffi::AV_PKT_FLAG_CORRUPT;
        // In a stream without times, no other packet has this one.
        raw.pts = known(raw.pts).unwrap_or(0);
        Some(packet)
    }
}

impl Drop for Packet {
    fn drop(&mut self) {
        let mut raw = self.as_ptr();
        // SAFETY: made by `av_packet_alloc`, freed once.
        unsafe { ffi::av_packet_free(&mut raw) };
    }
}

/// Returns the time; `None` for the smallest integer, libav's mark of an unknown time.
pub(super) fn known(time: i64) -> Option<i64> {
    (time != ffi::AV_NOPTS_VALUE).then_some(time)
}
