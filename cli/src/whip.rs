//! `sightline whip`: publishes files over WHIP (RFC 9725), as a camera or a browser would.
//!
//! One thread drives all sessions, which makes the command fit for load tests. The file is read in this
//! process, not in a sandboxed worker, as it is the user's own.

mod clip;
mod endpoint;
mod network_sim;
mod packetize;
mod player;
mod publisher;
mod session;

use std::{io, path::PathBuf};

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::{
    error::CliError,
    output::{StdoutWriter, TextTable, grouped},
    trust::CaArgs,
};

use publisher::Published;

#[derive(Args)]
pub struct WhipArgs {
    #[command(subcommand)]
    command: WhipCommand,
}

#[derive(Subcommand)]
enum WhipCommand {
    /// Publish a video file in real time to a WHIP endpoint
    ///
    /// Pictures are sent as they are coded, at the pace of the file; sound is left out. Lost packets
    /// are sent again from the last 1024. A file cannot code a picture anew, so after a loss that
    /// is not repaired the server waits for the file's next keyframe.
    Publish(PublishArgs),
}

#[derive(Args)]
pub struct PublishArgs {
    /// Video file with H.264, H.265, VP8, VP9 or AV1
    file: PathBuf,
    /// WHIP endpoint, such as http://127.0.0.1:8080/v1/stream/whip, or one of https
    url: String,
    /// Begin again at the end of the file, until Ctrl-C
    #[arg(long = "loop")]
    repeats: bool,
    /// Sessions that publish the file at once
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    count: u32,
    /// End after this many seconds
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: Option<u64>,
    /// Media packets that do not arrive, in percent
    #[arg(long, default_value_t = 0.0, value_name = "PCT", value_parser = percent)]
    loss: f64,
    /// Delay each media packet by up to this many milliseconds, which reorders them
    #[arg(long, default_value_t = 0, value_name = "MS", value_parser = clap::value_parser!(u64).range(0..=5000))]
    jitter: u64,
    /// API key, sent as a bearer token; prefer the variable, arguments are visible to other users
    #[arg(long, env = "SIGHTLINE_API_KEY", hide_env_values = true, value_name = "KEY")]
    api_key: Option<String>,
    /// Tenant to name in each request, where the server wants one
    #[arg(long, env = "SIGHTLINE_TENANT_ID", value_name = "ID")]
    tenant: Option<String>,
    /// Certificates to trust
    #[command(flatten)]
    trust: CaArgs,
    /// Handling of the stream: the JSON of the x-attach-config header
    #[arg(long, value_name = "JSON")]
    attach: Option<String>,
    /// Print the statistics as JSON
    #[arg(long)]
    json: bool,
}

fn percent(text: &str) -> Result<f64, &'static str> {
    let value = text.parse().ok().filter(|value| (0.0..=100.0).contains(value));
    value.ok_or("must be a number from 0 to 100")
}

fn no_socket(error: io::Error) -> CliError {
    CliError::Check(format!("cannot open a UDP socket: {error}"))
}

/// Statistics of all sessions together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PublishStats {
    pub connected: u64,
    /// Longest time from the offer to the connection, in milliseconds.
    pub connect_ms_max: u64,
    pub pictures: u64,
    /// Packets sent, including those then dropped on purpose.
    pub packets: u64,
    /// Bytes of those packets.
    pub bytes: u64,
    /// Packets dropped on purpose, or because the socket was full.
    pub lost: u64,
    /// Packets that the server requested again (NACK).
    pub asked: u64,
    /// Packets retransmitted.
    pub repeated: u64,
    pub keyframes_requested: u64,
    /// Number of times that pictures were skipped to reach a keyframe.
    pub jumps: u64,
}

impl PublishStats {
    fn add(&mut self, other: &PublishStats) {
        self.connected += other.connected;
        self.connect_ms_max = self.connect_ms_max.max(other.connect_ms_max);
        self.pictures += other.pictures;
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.lost += other.lost;
        self.asked += other.asked;
        self.repeated += other.repeated;
        self.keyframes_requested += other.keyframes_requested;
        self.jumps += other.jumps;
    }
}

/// Statistics as JSON.
#[derive(Serialize)]
struct PublishReport<'a> {
    runs: &'a [String],
    #[serde(flatten)]
    figures: &'a PublishStats,
}

pub fn run(args: &WhipArgs) -> Result<(), CliError> {
    let WhipCommand::Publish(args) = &args.command;
    let Published { runs, figures } = publisher::publish(args)?;
    let mut out = StdoutWriter::stdout();
    if args.json {
        out.json(&PublishReport { runs: &runs, figures: &figures })?;
    } else {
        let rows = [
            ("sessions connected", figures.connected),
            ("slowest connect, ms", figures.connect_ms_max),
            ("pictures sent", figures.pictures),
            ("packets sent", figures.packets),
            ("bytes sent", figures.bytes),
            ("packets lost on purpose", figures.lost),
            ("packets asked for again", figures.asked),
            ("packets sent again", figures.repeated),
            ("keyframes requested", figures.keyframes_requested),
            ("jumps to a keyframe", figures.jumps),
        ];
        let rows = rows.map(|(name, value)| [name.to_owned(), grouped(value)]);
        out.table(&TextTable::of(["figure", ">value"], rows))?;
    }
    out.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_read_within_its_bounds() {
        let cases = [
            ("0", Some(0.0)),
            ("2.5", Some(2.5)),
            ("100", Some(100.0)),
            ("101", None),
            ("x", None),
        ];
        for (text, expected) in cases {
            assert_eq!(percent(text).ok(), expected, "{text}");
        }
    }
}
