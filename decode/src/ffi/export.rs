//! Pictures of VAAPI that stay in their surfaces, told to other drivers as dma-bufs.
//!
//! Nothing is copied: a picture holds its surface, of which a decoder has so many more. Promises that
//! what decodes has ended when a picture is exported, by waiting for the fences of its memory. Which
//! arrangements of samples can be imported is the importing driver's matter.

use std::{
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
    time::Duration,
};

use ffmpeg_next::ffi;
use media::DmaBufPlane;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::retry_on_intr,
};

use super::{AvError, picture::RawFrame};

/// Pictures of one decoder that stay at once; the next are fetched.
const HELD_MAX: usize = 12;
/// A device that has not decoded a picture for so long is lost, as where it is fetched.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// Surfaces that a decoder has besides those it needs.
pub(super) const SURFACES: i32 = HELD_MAX as i32;

/// Whether a decoder's pictures stay, and how many do.
#[derive(Clone, Default)]
pub(super) struct Held(Arc<()>);

impl Held {
    /// Surfaces are left.
    fn has_room(&self) -> bool {
        // One is the decoder's own.
        Arc::strong_count(&self.0) <= HELD_MAX
    }
}

/// A surface as dma-bufs.
pub(super) struct Exported {
    /// Maps the decoder's frame; closes the dma-bufs.
    mapped: RawFrame,
    _held: Held,
}

/// Where a plane is: object, offset, pitch.
type Place = (usize, u64, u64);

impl Exported {
    /// The surface of `frame`; `None` where no more may be held, where the driver does not tell, or for
    /// other than two planes. An error is of a device that does not finish.
    pub(super) fn of(frame: &RawFrame, held: &Held) -> Result<Option<Exported>, String> {
        if !held.has_room() {
            return Ok(None);
        }
        let mapped = RawFrame::empty().map_err(|error| error.to_string())?;
        let format = ffi::AVPixelFormat::AV_PIX_FMT_DRM_PRIME;
        let read = ffi::AV_HWFRAME_MAP_READ as i32;
        // SAFETY: both frames are valid; the mapping is empty but for the format that is wanted, and
        // takes a reference to what it maps.
        let code = unsafe {
            (*mapped.as_ptr()).format = format as i32;
            ffi::av_hwframe_map(mapped.as_ptr(), frame.as_ptr(), read)
        };
        if AvError::check(code).is_err() {
            return Ok(None);
        }
        let exported = Exported { mapped, _held: held.clone() };
        match exported.places() {
            Some(places) => exported.wait(places).map(|()| Some(exported)),
            None => Ok(None),
        }
    }

    /// Luma, then chroma.
    pub(super) fn planes(&self) -> [DmaBufPlane<'_>; 2] {
        let places = self.places().expect("looked at when it was exported");
        places.map(|(object, offset, pitch)| {
            let (fd, modifier) = self.object(object);
            // SAFETY: the driver told where its planes are; `wait` saw what wrote there end, and the decoder
            // does not write to a surface that is held.
            unsafe { DmaBufPlane::new(fd, modifier, offset, pitch) }
        })
    }

    fn descriptor(&self) -> &ffi::AVDRMFrameDescriptor {
        // SAFETY: the first plane of a mapped frame of this format is its descriptor.
        unsafe { &*self.mapped.plane_at(0).0.cast::<ffi::AVDRMFrameDescriptor>() }
    }

    fn places(&self) -> Option<[Place; 2]> {
        let told = self.descriptor();
        let count = |count: i32| usize::try_from(count).unwrap_or(0);
        let layers = told.layers.get(..count(told.nb_layers))?;
        let planes =
            layers.iter().flat_map(|layer| layer.planes.iter().take(count(layer.nb_planes)));
        let places = planes.map(|plane| {
            let object = usize::try_from(plane.object_index).ok();
            let object = object.filter(|object| *object < count(told.nb_objects))?;
            Some((object, u64::try_from(plane.offset).ok()?, u64::try_from(plane.pitch).ok()?))
        });
        let places: Vec<Place> = places.collect::<Option<_>>()?;
        places.try_into().ok()
    }

    /// The dma-buf of this number, which `places` saw, and its modifier.
    fn object(&self, index: usize) -> (BorrowedFd<'_>, u64) {
        let object = &self.descriptor().objects[index];
        // SAFETY: open for as long as the mapped frame.
        (unsafe { BorrowedFd::borrow_raw(object.fd) }, object.format_modifier)
    }

    /// Until the device has written what it was to write: a dma-buf that can be read has no such fence.
    fn wait(&self, places: [Place; 2]) -> Result<(), String> {
        for (object, ..) in places {
            let (fd, _) = self.object(object);
            let timeout = Timespec::try_from(WAIT_MAX).map_err(|error| error.to_string())?;
            let ready = retry_on_intr(|| {
                poll(&mut [PollFd::new(&fd.as_fd(), PollFlags::IN)], Some(&timeout))
            });
            match ready {
                Ok(0) => return Err(format!("a picture is not there after {WAIT_MAX:?}")),
                Ok(_) => {}
                Err(error) => return Err(format!("waiting for a picture: {error}")),
            }
        }
        Ok(())
    }
}
