//! Size and format of AV1 pictures, and detection of frames that override the sequence's size.

use media::Bits;

/// Size and format in a sequence header (AV1 5.5.1).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Av1Dimensions {
    profile: u32,
    /// Columns and rows, minus one.
    size: (u32, u32),
    /// Bit depth, chroma format and range of the samples.
    format: Format,
}

#[derive(Debug, PartialEq, Eq)]
struct Format {
    is_high: bool,
    is_twelve: bool,
    is_mono: bool,
    is_full_range: bool,
    subsampling: (u32, u32),
}

/// Fields of a sequence header that frame headers depend on.
pub(super) struct Av1SequenceHeader {
    is_reduced: bool,
    /// Bits of the presentation time in every shown frame.
    point_bits: u32,
    screen_content_tools: u32,
    integer_mv: u32,
    frame_id_bits: u32,
}

/// `SELECT_SCREEN_CONTENT_TOOLS` and `SELECT_INTEGER_MV`: each frame header has the value.
const EACH_FRAME_SAYS: u32 = 2;

/// Values of `frame_type` (6.8.2).
const KEY_FRAME: u32 = 0;
const SWITCH_FRAME: u32 = 3;

/// Reads `sequence_header_obu` up to `color_config`.
pub(super) fn sequence(bits: &mut Bits<'_>) -> Option<(Av1SequenceHeader, Av1Dimensions)> {
    let profile = bits.take(3)?;
    // still_picture
    bits.take(1)?;
    let is_reduced = bits.flag()?;
    let mut point_bits = 0;
    if is_reduced {
        // seq_level_idx
        bits.take(5)?;
    } else {
        point_bits = operating_points(bits)?;
    }
    let (columns, rows) = (bits.take(4)? + 1, bits.take(4)? + 1);
    let size = (bits.take(columns)?, bits.take(rows)?);
    let mut frame_id_bits = 0;
    if !is_reduced && bits.flag()? {
        frame_id_bits = bits.take(4)? + 2;
        frame_id_bits += bits.take(3)? + 1;
    }
    // use_128x128_superblock, enable_filter_intra, enable_intra_edge_filter
    bits.take(3)?;
    let (mut screen_content_tools, mut integer_mv) = (EACH_FRAME_SAYS, EACH_FRAME_SAYS);
    if !is_reduced {
        // Four tools, then enable_order_hint and the two flags that depend on it.
        bits.take(4)?;
        let has_order_hint = bits.flag()?;
        if has_order_hint {
            bits.take(2)?;
        }
        if !bits.flag()? {
            screen_content_tools = bits.take(1)?;
        }
        if screen_content_tools > 0 && !bits.flag()? {
            integer_mv = bits.take(1)?;
        }
        if has_order_hint {
            // order_hint_bits_minus_1
            bits.take(3)?;
        }
    }
    // enable_superres, enable_cdef, enable_restoration
    bits.take(3)?;
    let format = format(bits, profile)?;
    let sequence = Av1SequenceHeader {
        is_reduced,
        point_bits,
        screen_content_tools,
        integer_mv,
        frame_id_bits,
    };
    Some((sequence, Av1Dimensions { profile, size, format }))
}

/// Reads `color_config` (5.5.2).
fn format(bits: &mut Bits<'_>, profile: u32) -> Option<Format> {
    /// BT.709 primaries, sRGB transfer, identity matrix: RGB.
    const RGB: u32 = 0x01_0d_00;
    let is_high = bits.flag()?;
    let is_twelve = profile == 2 && is_high && bits.flag()?;
    let is_mono = profile != 1 && bits.flag()?;
    // color_primaries, transfer_characteristics, matrix_coefficients
    let meant = if bits.flag()? { Some(bits.take(24)?) } else { None };
    let is_rgb = !is_mono && meant == Some(RGB);
    let is_full_range = is_rgb || bits.flag()?;
    let subsampling = match profile {
        _ if is_mono => (1, 1),
        _ if is_rgb => (0, 0),
        0 => (1, 1),
        1 => (0, 0),
        _ if !is_twelve => (1, 0),
        _ => match bits.take(1)? {
            1 => (1, bits.take(1)?),
            _ => (0, 0),
        },
    };
    Some(Format { is_high, is_twelve, is_mono, is_full_range, subsampling })
}

impl Av1SequenceHeader {
    /// Reads a frame header up to `frame_size_override_flag` (5.9.2); true if the sequence's size applies.
    pub(super) fn rules(&self, bits: &mut Bits<'_>) -> Option<bool> {
        if self.is_reduced {
            return Some(true);
        }
        // show_existing_frame
        if bits.flag()? {
            return Some(true);
        }
        let (kind, is_shown) = (bits.take(2)?, bits.flag()?);
        // Presentation time of a shown frame, else showable_frame.
        bits.take(if is_shown { self.point_bits } else { 1 })?;
        if kind != SWITCH_FRAME && !(kind == KEY_FRAME && is_shown) {
            // error_resilient_mode
            bits.take(1)?;
        }
        // disable_cdf_update
        bits.take(1)?;
        let tools = match self.screen_content_tools {
            EACH_FRAME_SAYS => bits.take(1)?,
            said => said,
        };
        if tools > 0 && self.integer_mv == EACH_FRAME_SAYS {
            bits.take(1)?;
        }
        bits.take(self.frame_id_bits)?;
        Some(kind != SWITCH_FRAME && !bits.flag()?)
    }
}

/// Reads from `timing_info_present_flag` to the end of the operating points; returns the bits of the
/// presentation time in every shown frame.
fn operating_points(bits: &mut Bits<'_>) -> Option<u32> {
    let (mut is_equal, mut model) = (false, None);
    if bits.flag()? {
        // num_units_in_display_tick, time_scale
        bits.take(32)?;
        bits.take(32)?;
        is_equal = bits.flag()?;
        if is_equal {
            skip_uvlc(bits)?;
        }
        if bits.flag()? {
            let delay_bits = bits.take(5)? + 1;
            // num_units_in_decoding_tick, buffer_removal_time_length_minus_1
            bits.take(32)?;
            bits.take(5)?;
            model = Some((delay_bits, bits.take(5)? + 1));
        }
    }
    let has_display_delay = bits.flag()?;
    for _ in 0..=bits.take(5)? {
        // operating_point_idc
        bits.take(12)?;
        if bits.take(5)? > 7 {
            // seq_tier
            bits.take(1)?;
        }
        if let Some((delay_bits, _)) = model
            && bits.flag()?
        {
            // decoder_buffer_delay, encoder_buffer_delay, low_delay_mode_flag
            bits.take(delay_bits)?;
            bits.take(delay_bits)?;
            bits.take(1)?;
        }
        if has_display_delay && bits.flag()? {
            bits.take(4)?;
        }
    }
    Some(model.filter(|_| !is_equal).map_or(0, |(_, point_bits)| point_bits))
}

/// Skips a `uvlc` number (AV1 4.10.3).
fn skip_uvlc(bits: &mut Bits<'_>) -> Option<()> {
    let mut zeros = 0;
    while !bits.flag()? {
        zeros += 1;
    }
    // 32 or more zeros stand for the largest number, without further bits.
    if zeros < 32 { bits.skip(zeros) } else { Some(()) }
}
