//! Invariants of playlists and of conversations with RTSP servers, for any input.

use std::time::Duration;

use super::playlist::{Playlist, parse};

pub use super::rtsp::fuzz::conversation;

/// Checks a response that may be an HLS playlist.
pub fn playlist(bytes: &[u8]) {
    match parse(bytes) {
        Ok(Playlist::Media(media)) => {
            assert!(media.target >= Duration::from_secs(1), "{:?}", media.target);
            let count = media.end() - media.first;
            assert!(count <= bytes.len() as u64, "{count} segments in {} bytes", bytes.len());
            for number in [0, media.first, media.end(), u64::MAX] {
                let is_there = (media.first..media.end()).contains(&number);
                assert_eq!(media.segment(number).is_some(), is_there, "{number}");
            }
        }
        Ok(Playlist::Master(address)) => assert!(address.len() <= bytes.len()),
        Err(error) => assert!(error.to_string().len() < 300, "{error}"),
    }
}
