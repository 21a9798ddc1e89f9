//! libav byte stream over a [`ByteSource`].

use std::{
    ffi::{c_int, c_void},
    io::{ErrorKind, Read, Seek, SeekFrom},
    panic::{AssertUnwindSafe, catch_unwind},
    ptr,
};

use ffmpeg_next::ffi;

use super::AvError;
use crate::ByteSource;

/// Most bytes per read or write of libav.
const BUFFER_BYTES: usize = 64 << 10;

/// State of the callbacks, reached through libav's opaque pointers.
pub(super) struct AvioOpaque {
    input: Box<dyn ByteSource>,
    /// Buffer of each read. At the end of the input libav passes memory that it still uses: bytes that were
    /// not read must stay unchanged.
    read: Box<[u8]>,
    /// True if the container referred to another resource.
    pub(super) refused: bool,
}

/// Owns an `AVIOContext` and the input behind it.
pub(super) struct AvioContext {
    pub(super) context: *mut ffi::AVIOContext,
    pub(super) source: *mut AvioOpaque,
}

// SAFETY: both pointers are owned by this value alone, and `AvioOpaque` holds only `Send` data.
unsafe impl Send for AvioContext {}

impl AvioContext {
    /// Makes a stream of `input`, on which libav seeks if it can. A stream of `packets` bypasses libav's buffer,
    /// so that each read returns one packet; libav's output, reports for the sender, is dropped.
    pub(super) fn new(
        mut input: Box<dyn ByteSource>,
        packets: bool,
    ) -> Result<AvioContext, AvError> {
        let seekable = input.stream_position().is_ok();
        let source = Box::into_raw(Box::new(AvioOpaque {
            input,
            read: vec![0; BUFFER_BYTES].into_boxed_slice(),
            refused: false,
        }));
        let mut io = AvioContext { context: ptr::null_mut(), source };
        io.context = stream_with_buffer(|buffer, bytes| {
            // SAFETY: `buffer` has the size given, `source` outlives the context (see `Drop`), and the callbacks
            // expect exactly that pointer.
            unsafe {
                ffi::avio_alloc_context(
                    buffer,
                    bytes,
                    i32::from(packets),
                    source.cast(),
                    Some(read),
                    None,
                    seekable.then_some(seek as _),
                )
            }
        })?;
        Ok(io)
    }

    /// Takes the input; nothing can be read afterwards.
    pub(super) fn take_input(&mut self) -> Box<dyn ByteSource> {
        // SAFETY: as in `refused`, and `&mut self` excludes other access.
        let source = unsafe { &mut *self.source };
        std::mem::replace(&mut source.input, Box::new(std::io::empty()))
    }

    pub(super) fn refused(&self) -> bool {
        // SAFETY: `source` lives as long as self; callbacks run only inside libav calls that
        // the owner of this value makes, so none runs now.
        unsafe { (*self.source).refused }
    }

    /// Returns true if the last read failed, as opposed to reaching the end.
    pub(super) fn failed(&self) -> bool {
        // SAFETY: the context lives as long as self.
        let error = unsafe { (*self.context).error };
        error < 0 && AvError(error) != AvError::END
    }
}

/// Source that is read once, without seeking.
pub(super) struct Unseekable(pub(super) Box<dyn Read + Send>);

impl Read for Unseekable {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(out)
    }
}

impl Seek for Unseekable {
    fn seek(&mut self, _: SeekFrom) -> std::io::Result<u64> {
        Err(ErrorKind::Unsupported.into())
    }
}

impl Drop for AvioContext {
    fn drop(&mut self) {
        // SAFETY: both were made in `new`, where the context may have stayed null, and are freed once.
        unsafe {
            free_stream(self.context);
            drop(Box::from_raw(self.source));
        }
    }
}

/// Returns the byte stream that `make` allocates around a buffer of this many bytes.
pub(super) fn stream_with_buffer(
    make: impl FnOnce(*mut u8, c_int) -> *mut ffi::AVIOContext,
) -> Result<*mut ffi::AVIOContext, AvError> {
    // SAFETY: plain allocation; ownership passes to the stream below.
    let buffer = unsafe { ffi::av_malloc(BUFFER_BYTES) }.cast::<u8>();
    if buffer.is_null() {
        return Err(AvError::NO_MEMORY);
    }
    let stream = make(buffer, BUFFER_BYTES as c_int);
    if stream.is_null() {
        // SAFETY: the buffer was not handed over.
        unsafe { ffi::av_free(buffer.cast()) };
        return Err(AvError::NO_MEMORY);
    }
    Ok(stream)
}

/// Frees a byte stream and its present buffer, as libav may have replaced it; null is accepted.
///
/// # Safety
///
/// `stream` must come from [`stream_with_buffer`] and not be used again.
pub(super) unsafe fn free_stream(mut stream: *mut ffi::AVIOContext) {
    if !stream.is_null() {
        // SAFETY: by this function's contract.
        unsafe {
            ffi::av_freep(ptr::addr_of_mut!((*stream).buffer).cast());
            ffi::avio_context_free(&mut stream);
        }
    }
}

unsafe extern "C" fn read(opaque: *mut c_void, buffer: *mut u8, size: i32) -> i32 {
    let Ok(size) = usize::try_from(size) else { return AvError::IO.0 };
    // SAFETY: `opaque` is the `AvioOpaque` given to `avio_alloc_context`, alive and used by one
    // thread at a time.
    let source = unsafe { &mut *opaque.cast::<AvioOpaque>() };
    let size = size.min(BUFFER_BYTES);
    let attempt = catch_unwind(AssertUnwindSafe(|| {
        loop {
            match source.input.read(&mut source.read[..size]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }));
    match attempt {
        Ok(Ok(0)) => AvError::END.0,
        Ok(Ok(count)) if count <= size => {
            // SAFETY: libav gives at least `size` writable bytes, none of them ours.
            unsafe { ptr::copy_nonoverlapping(source.read.as_ptr(), buffer, count) };
            count as i32
        }
        // A panic must not cross C; like any failed read it ends the stream.
        Ok(Ok(_) | Err(_)) | Err(_) => AvError::IO.0,
    }
}

unsafe extern "C" fn seek(opaque: *mut c_void, offset: i64, whence: i32) -> i64 {
    // SAFETY: as in `read`.
    let source = unsafe { &mut *opaque.cast::<AvioOpaque>() };
    let failed = i64::from(AvError::IO.0);
    let attempt = catch_unwind(AssertUnwindSafe(|| -> std::io::Result<u64> {
        if whence & ffi::AVSEEK_SIZE != 0 {
            let here = source.input.stream_position()?;
            let size = source.input.seek(SeekFrom::End(0))?;
            source.input.seek(SeekFrom::Start(here))?;
            return Ok(size);
        }
        let to = match whence & !ffi::AVSEEK_FORCE {
            ffi::SEEK_SET => SeekFrom::Start(
                u64::try_from(offset).map_err(|_| std::io::Error::from(ErrorKind::InvalidInput))?,
            ),
            ffi::SEEK_CUR => SeekFrom::Current(offset),
            ffi::SEEK_END => SeekFrom::End(offset),
            _ => return Err(ErrorKind::InvalidInput.into()),
        };
        source.input.seek(to)
    }));
    match attempt {
        Ok(Ok(position)) => i64::try_from(position).unwrap_or(failed),
        Ok(Err(_)) | Err(_) => failed,
    }
}
