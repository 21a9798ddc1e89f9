//! Payloads of NAL units, and depacketizing them to pictures, for tests.

use super::{DepacketizeResult, DepacketizedUnit, Depacketizer, Malformed, START_CODE, UnitKind};

pub const START: UnitKind = UnitKind::Start { breaks_link: false };
pub const MALFORMED: DepacketizeResult = Err(Malformed);

/// Returns an aggregation packet: its header, and each unit after its length.
pub fn aggregated(header: &[u8], nals: &[&[u8]]) -> Vec<u8> {
    let mut payload = header.to_vec();
    for nal in nals {
        payload.extend((nal.len() as u16).to_be_bytes());
        payload.extend_from_slice(nal);
    }
    payload
}

fn annex_b(nals: &[&[u8]]) -> Vec<u8> {
    nals.iter().flat_map(|nal| [&START_CODE, *nal].concat()).collect()
}

/// Depacketizes the payloads of one picture.
pub fn unit(depacketizer: &mut impl Depacketizer, payloads: &[Vec<u8>]) -> DepacketizeResult {
    depacketizer.reset();
    payloads.iter().try_for_each(|payload| depacketizer.push(payload))?;
    depacketizer.finish()
}

pub fn given(nals: &[&[u8]], role: UnitKind) -> DepacketizeResult {
    Ok(Some(DepacketizedUnit { data: annex_b(nals), role }))
}
