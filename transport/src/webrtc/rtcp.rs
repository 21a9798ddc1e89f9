//! RTCP (RFC 3550 6): parses sender reports and goodbyes, writes reports and requests.
//!
//! Parses compound packets in place, skips unknown ones, and writes into the caller's buffer. Promises that
//! its output is a valid compound packet: a receiver report first, then a source description.

const SENDER_REPORT: u8 = 200;
const RECEIVER_REPORT: u8 = 201;
const SOURCE_DESCRIPTION: u8 = 202;
const GOODBYE: u8 = 203;
const TRANSPORT_FEEDBACK: u8 = 205;
const PAYLOAD_FEEDBACK: u8 = 206;

const NACK: u8 = 1;
const PLI: u8 = 1;
const FIR: u8 = 4;
const APPLICATION: u8 = 15;
const TRANSPORT_WIDE: u8 = 15;
/// Padding flag of a packet.
const PADDED: u8 = 0x20;

/// Most entries of one NACK: 64 entries for 17 packets each keep a datagram below 400 bytes.
const NACK_ENTRIES_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RtcpEvent {
    /// Sender report: the media clock was `rtp` at the wall clock time `ntp`.
    Report { ssrc: u32, ntp: u64, rtp: u32 },
    /// BYE: a source ends.
    Goodbye { ssrc: u32 },
}

/// Calls `each` for every message of a compound packet; stops at a malformed one.
pub(super) fn read(mut packet: &[u8], mut each: impl FnMut(RtcpEvent)) {
    while let [head, kind, high, low, ..] = *packet {
        let bytes = 4 * (usize::from(u16::from_be_bytes([high, low])) + 1);
        if head >> 6 != 2 || packet.len() < bytes {
            return;
        }
        let (one, rest) = packet.split_at(bytes);
        match kind {
            SENDER_REPORT if one.len() >= 28 => each(RtcpEvent::Report {
                ssrc: long(one, 4),
                ntp: (u64::from(long(one, 8)) << 32) | u64::from(long(one, 12)),
                rtp: long(one, 16),
            }),
            GOODBYE => {
                let sources = one[4..].chunks_exact(4).take(usize::from(head & 31));
                sources.for_each(|source| each(RtcpEvent::Goodbye { ssrc: long(source, 0) }));
            }
            _ => {}
        }
        packet = rest;
    }
}

fn long(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Report block of one source (RFC 3550 6.4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReportBlock {
    pub(super) ssrc: u32,
    /// Fraction lost since the last report, in 256ths.
    pub(super) fraction_lost: u8,
    /// Packets lost since the first; negative if there were duplicates.
    pub(super) lost: i32,
    /// Extended highest sequence number, with the wraps in the upper bits.
    pub(super) highest: u32,
    /// Interarrival jitter in media clock ticks.
    pub(super) jitter: u32,
    /// Middle 32 bits of the last sender report's NTP time; zero before one.
    pub(super) last_report: u32,
    /// Time since the last sender report, in 65,536ths of a second.
    pub(super) since_report: u32,
}

/// Appends a receiver report from `us` and its source description.
pub(super) fn report(out: &mut Vec<u8>, us: u32, block: Option<ReportBlock>) {
    match block {
        None => write(out, 0, RECEIVER_REPORT, &[us]),
        Some(block) => {
            // 24 bits, two's complement, saturating (RFC 3550 A.3).
            let lost = block.lost.clamp(-0x80_0000, 0x7F_FFFF) as u32 & 0xFF_FFFF;
            let lost = u32::from(block.fraction_lost) << 24 | lost;
            let ReportBlock { ssrc, highest, jitter, last_report, since_report, .. } = block;
            let words = [us, ssrc, lost, highest, jitter, last_report, since_report];
            write(out, 1, RECEIVER_REPORT, &words);
        }
    }
    // One CNAME item of eight letters, then zeros that end the list and pad the word.
    head(out, 1, SOURCE_DESCRIPTION, 4);
    push(out, us);
    out.extend_from_slice(&[1, 8]);
    for nibble in (0..8).rev() {
        out.push(b'a' + ((us >> (4 * nibble)) & 15) as u8);
    }
    out.extend_from_slice(&[0, 0]);
}

/// Appends a picture loss indication (RFC 4585 6.3.1).
pub(super) fn picture_loss(out: &mut Vec<u8>, us: u32, ssrc: u32) {
    write(out, PLI, PAYLOAD_FEEDBACK, &[us, ssrc]);
}

/// Appends a full intra request (RFC 5104 4.3.1) with the sequence number `number`.
pub(super) fn full_intra(out: &mut Vec<u8>, us: u32, ssrc: u32, number: u8) {
    write(out, FIR, PAYLOAD_FEEDBACK, &[us, 0, ssrc, u32::from(number) << 24]);
}

/// Appends a generic NACK (RFC 4585 6.2.1) of sequence numbers in order. Returns how many it contains.
pub(super) fn nack(out: &mut Vec<u8>, us: u32, ssrc: u32, missing: &[u16]) -> usize {
    let start = out.len();
    write(out, NACK, TRANSPORT_FEEDBACK, &[us, ssrc]);
    let (mut entries, mut named, mut at) = (0usize, 0usize, 0usize);
    while at < missing.len() && entries < NACK_ENTRIES_MAX {
        let first = missing[at];
        let mut following = 0u16;
        at += 1;
        named += 1;
        while let Some(distance) = missing.get(at).map(|next| next.wrapping_sub(first)) {
            if !(1..=16).contains(&distance) {
                break;
            }
            following |= 1 << (distance - 1);
            at += 1;
            named += 1;
        }
        push(out, (u32::from(first) << 16) | u32::from(following));
        entries += 1;
    }
    // Two words for the SSRCs and one per entry, below 70 in all.
    out[start + 3] = (2 + entries) as u8;
    named
}

/// Appends a REMB with the bit rate that the server accepts (draft-alvestrand-rmcat-remb-03 2.2).
pub(super) fn bit_rate(out: &mut Vec<u8>, us: u32, ssrc: u32, bits_a_second: u64) {
    // The value has a mantissa of 18 bits and an exponent.
    let exponent = (64 - bits_a_second.leading_zeros()).saturating_sub(18);
    let mantissa = (bits_a_second >> exponent) as u32;
    let rate = (1 << 24) | (exponent << 18) | mantissa;
    let name = u32::from_be_bytes(*b"REMB");
    write(out, APPLICATION, PAYLOAD_FEEDBACK, &[us, 0, name, rate, ssrc]);
}

/// Appends transport-wide feedback (draft-holmer-rmcat-transport-wide-cc-extensions-01 3.1); `report` is the
/// part after the SSRCs. The packet may be padded, so it must come last.
pub(super) fn transport_wide(out: &mut Vec<u8>, us: u32, ssrc: u32, report: &[u8]) {
    let padding = report.len().next_multiple_of(4) - report.len();
    let flag = if padding > 0 { PADDED } else { 0 };
    // Below 255 words, as no report is longer than 1000 bytes.
    let words = 2 + report.len().div_ceil(4);
    head(out, flag | TRANSPORT_WIDE, TRANSPORT_FEEDBACK, words as u8);
    push(out, us);
    push(out, ssrc);
    out.extend_from_slice(report);
    // RFC 3550 6.4.1: the last byte of the padding is its length.
    out.extend_from_slice(&[0, 0, 0, padding as u8][4 - padding..]);
}

/// Appends a packet of these words.
fn write(out: &mut Vec<u8>, count: u8, kind: u8, words: &[u32]) {
    // At most seven words are written here.
    head(out, count, kind, words.len() as u8);
    words.iter().for_each(|word| push(out, *word));
}

/// Appends a packet header; `words` is the number of 32-bit words after it.
fn head(out: &mut Vec<u8>, count: u8, kind: u8, words: u8) {
    out.extend_from_slice(&[0x80 | count, kind, 0, words]);
}

fn push(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_whole_before_a_cut_is_read() {
        let mut packet = vec![0x80, SENDER_REPORT, 0, 6];
        for word in [7u32, 0xE000_0001, 0x8000_0000, 90_000, 10, 1000] {
            push(&mut packet, word);
        }
        packet.extend_from_slice(&[0x82, GOODBYE, 0, 2, 0, 0, 0, 7, 0, 0, 0, 8]);
        for (bytes, expected) in [(27, 0), (32, 1), (40, 3)] {
            let mut events = 0;
            read(&packet[..bytes], |_| events += 1);
            assert_eq!(events, expected, "{bytes} bytes");
        }
    }

    #[test]
    fn feedback_is_padded_to_words() {
        for (bytes, format, last) in [(8, 15, 7), (9, 15 | PADDED, 3), (11, 15 | PADDED, 1)] {
            let mut out = Vec::new();
            transport_wide(&mut out, 9, 7, &vec![7; bytes]);
            assert_eq!((out[0] & 0x3f, out[1], out.last()), (format, 205, Some(&last)), "{bytes}");
            assert_eq!(out.len(), 12 + bytes.next_multiple_of(4), "{bytes}");
            assert_eq!(out.len(), 4 * (usize::from(out[3]) + 1), "{bytes}");
        }
    }
}
