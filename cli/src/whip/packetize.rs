//! Packetizes coded pictures: RFC 6184, RFC 7798, RFC 7741, RFC 9628 and AV1's RTP format.
//!
//! Bytes in, bytes out: small NAL units are aggregated, large ones fragmented. Also used by the tests of the
//! server's receiver.

use decode::annex_b_units;
use media::{AccessUnit, Codec, Obu, to_leb128};

/// Packetizer of the pictures of one source.
#[derive(Debug)]
pub struct Packetizer {
    codec: Codec,
    /// Most bytes of a payload.
    bytes_max: usize,
    /// Picture id of VP8 and VP9, 15 bits.
    picture_id: u16,
}

/// Smallest payload with room for data after every header.
const BYTES_MIN: usize = 16;

impl Packetizer {
    /// Creates a packetizer for payloads of at most `bytes_max`; `None` for a codec without payload format.
    pub fn new(codec: Codec, bytes_max: usize) -> Option<Packetizer> {
        let is_served = !matches!(codec, Codec::Mpeg4 | Codec::Mjpeg);
        let packetizer = Packetizer { codec, bytes_max: bytes_max.max(BYTES_MIN), picture_id: 0 };
        is_served.then_some(packetizer)
    }

    /// Returns the payloads of the next picture, in order; the last one's packet gets the marker bit.
    pub fn payloads(&mut self, unit: &AccessUnit) -> Vec<Vec<u8>> {
        self.picture_id = self.picture_id.wrapping_add(1) & 0x7fff;
        match self.codec {
            Codec::H264 => nal_payloads(&unit.data, self.bytes_max, &H264Packetizer),
            Codec::H265 => nal_payloads(&unit.data, self.bytes_max, &H265Packetizer),
            Codec::Vp8 => self.vp8(&unit.data),
            Codec::Vp9 => self.vp9(&unit.data, unit.keyframe),
            Codec::Av1 => av1(&unit.data, self.bytes_max),
            Codec::Mpeg4 | Codec::Mjpeg => Vec::new(),
        }
    }

    /// RFC 7741 4.2: a descriptor of four bytes with a 15-bit picture id.
    fn vp8(&self, frame: &[u8]) -> Vec<Vec<u8>> {
        let [high, low] = self.picture_id.to_be_bytes();
        let parts = frame.chunks(self.bytes_max - 4).enumerate();
        let payload = |(index, part): (usize, &[u8])| {
            let begins = if index == 0 { 0x10 } else { 0 };
            [&[0x80 | begins, 0x80, 0x80 | high, low], part].concat()
        };
        parts.map(payload).collect()
    }

    /// RFC 9628 4.2: non-flexible mode, one layer, a 15-bit picture id.
    fn vp9(&self, frame: &[u8], is_key: bool) -> Vec<Vec<u8>> {
        let [high, low] = self.picture_id.to_be_bytes();
        let count = frame.len().div_ceil(self.bytes_max - 3);
        let parts = frame.chunks(self.bytes_max - 3).enumerate();
        let payload = |(index, part): (usize, &[u8])| {
            let inter = if is_key { 0 } else { 0x40 };
            let begins = if index == 0 { 0x08 } else { 0 };
            let ends = if index + 1 == count { 0x04 } else { 0 };
            [&[0x80 | inter | begins | ends, 0x80 | high, low], part].concat()
        };
        parts.map(payload).collect()
    }
}

/// Differences between the payload formats of H.264 and H.265.
trait NalFormat {
    const HEADER_BYTES: usize;

    /// Returns the header of an aggregation packet of these NAL units, which must not be empty.
    fn aggregation(nals: &[&[u8]]) -> Vec<u8>;

    /// Returns the headers of a fragment of the NAL unit with this header.
    fn fragment(header: &[u8], starts: bool, ends: bool) -> Vec<u8>;
}

struct H264Packetizer;

impl NalFormat for H264Packetizer {
    const HEADER_BYTES: usize = 1;

    fn aggregation(nals: &[&[u8]]) -> Vec<u8> {
        // RFC 6184 5.7: the highest NRI of all units.
        let importance = nals.iter().map(|nal| nal[0] & 0x60).max().unwrap_or(0);
        vec![importance | 24]
    }

    fn fragment(header: &[u8], starts: bool, ends: bool) -> Vec<u8> {
        let flags = u8::from(starts) << 7 | u8::from(ends) << 6;
        vec![header[0] & 0xe0 | 28, flags | header[0] & 0x1f]
    }
}

struct H265Packetizer;

impl NalFormat for H265Packetizer {
    const HEADER_BYTES: usize = 2;

    fn aggregation(nals: &[&[u8]]) -> Vec<u8> {
        // RFC 7798 4.4.2: the lowest layer and the lowest temporal id of all units.
        let layer = |nal: &&[u8]| u16::from(nal[0] & 1) << 5 | u16::from(nal[1] >> 3);
        let lowest = nals.iter().map(layer).min().unwrap_or(0);
        let temporal = nals.iter().map(|nal| nal[1] & 7).min().unwrap_or(1);
        vec![48 << 1 | (lowest >> 5) as u8, (lowest << 3) as u8 | temporal]
    }

    fn fragment(header: &[u8], starts: bool, ends: bool) -> Vec<u8> {
        let flags = u8::from(starts) << 7 | u8::from(ends) << 6;
        vec![header[0] & 0x81 | 49 << 1, header[1], flags | header[0] >> 1 & 0x3f]
    }
}

fn nal_payloads<F: NalFormat>(unit: &[u8], bytes_max: usize, _format: &F) -> Vec<Vec<u8>> {
    let mut payloads = Vec::new();
    let mut small: Vec<&[u8]> = Vec::new();
    let mut small_bytes = F::HEADER_BYTES;
    for nal in annex_b_units(unit).filter(|nal| nal.len() > F::HEADER_BYTES) {
        if small_bytes + 2 + nal.len() > bytes_max {
            payloads.extend(aggregated::<F>(&small));
            small.clear();
            small_bytes = F::HEADER_BYTES;
        }
        if F::HEADER_BYTES + 2 + nal.len() <= bytes_max {
            small_bytes += 2 + nal.len();
            small.push(nal);
        } else if nal.len() <= bytes_max {
            payloads.push(nal.to_vec());
        } else {
            fragments::<F>(nal, bytes_max, &mut payloads);
        }
    }
    payloads.extend(aggregated::<F>(&small));
    payloads
}

fn aggregated<F: NalFormat>(nals: &[&[u8]]) -> Option<Vec<u8>> {
    match nals {
        [] => None,
        [nal] => Some(nal.to_vec()),
        nals => {
            let mut payload = F::aggregation(nals);
            for nal in nals {
                payload.extend_from_slice(&(nal.len() as u16).to_be_bytes());
                payload.extend_from_slice(nal);
            }
            Some(payload)
        }
    }
}

fn fragments<F: NalFormat>(nal: &[u8], bytes_max: usize, payloads: &mut Vec<Vec<u8>>) {
    let (header, body) = nal.split_at(F::HEADER_BYTES);
    let room = bytes_max - F::HEADER_BYTES - 1;
    let count = body.len().div_ceil(room);
    for (index, part) in body.chunks(room).enumerate() {
        let mut payload = F::fragment(header, index == 0, index + 1 == count);
        payload.extend_from_slice(part);
        payloads.push(payload);
    }
}

/// AV1 RTP 4.3: OBU elements with their sizes, as many per packet as fit.
fn av1(unit: &[u8], bytes_max: usize) -> Vec<Vec<u8>> {
    let obus: Vec<Vec<u8>> = obus(unit);
    // 4.4: a coded video sequence begins with its sequence header.
    let is_new = obus.first().is_some_and(|obu| Obu::kind_of(obu[0]) == Obu::SEQUENCE_HEADER);
    let mut payloads = vec![vec![u8::from(is_new) << 3]];
    for obu in &obus {
        let mut rest = &obu[..];
        let mut continues = false;
        while !rest.is_empty() {
            let payload = payloads.last_mut().filter(|payload| payload.len() + 5 < bytes_max);
            let payload = match payload {
                Some(payload) => payload,
                None => {
                    payloads.push(vec![u8::from(continues) << 7]);
                    continue;
                }
            };
            // A size takes at most three bytes here, as an element is never longer than a packet.
            let room = (bytes_max - payload.len()).saturating_sub(3).min(rest.len());
            let (part, after) = rest.split_at(room);
            payload.extend(to_leb128(part.len() as u32));
            payload.extend_from_slice(part);
            rest = after;
            continues = !rest.is_empty();
            if continues {
                payload[0] |= 0x40;
                payloads.push(vec![0x80]);
            }
        }
    }
    payloads.retain(|payload| payload.len() > 1);
    payloads
}

/// Returns the OBUs of a temporal unit without size fields; delimiters and padding are left out (5).
fn obus(unit: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut rest = unit;
    while let Some((obu, after)) = Obu::split(rest) {
        rest = after;
        if !matches!(Obu::kind_of(obu.header), Obu::DELIMITER | Obu::TILE_LIST | Obu::PADDING) {
            let header = [obu.header & !Obu::HAS_SIZE];
            found.push([&header, obu.extension.as_slice(), obu.payload].concat());
        }
    }
    found
}
