//! `sightline markers`: the marker timeline of a run; also the table that `analyze` and `demo` print.

use crate::{
    client::{Client, ServerArgs},
    error::CliError,
    output::{Out, Table, clock},
    wire::{MarkerRecord, MarkersReply},
};

/// Arguments of `markers`.
#[derive(clap::Args)]
pub struct MarkersArgs {
    /// Run id
    run: String,
    /// Only markers of this status
    #[arg(long, value_parser = ["exact", "provisional", "finalized"])]
    status: Option<String>,
    /// Only markers of this event type
    #[arg(long, value_name = "TYPE")]
    event_type: Option<String>,
    /// Only markers that end at or after this frame
    #[arg(long, value_name = "N")]
    from_frame: Option<u64>,
    /// Only markers that start at or before this frame
    #[arg(long, value_name = "N")]
    to_frame: Option<u64>,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// Runs `markers`.
pub fn run(args: &MarkersArgs) -> Result<(), CliError> {
    let client = Client::new(&args.server)?;
    let number = |value: Option<u64>| value.map(|value| value.to_string());
    let filters = [
        ("status", args.status.clone()),
        ("event_type", args.event_type.clone()),
        ("from_frame", number(args.from_frame)),
        ("to_frame", number(args.to_frame)),
    ];
    let query: Vec<(&str, String)> =
        filters.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    let reply: MarkersReply = client.get(&client.run_path(&args.run, "/markers")?, &query)?;
    let mut out = Out::stdout();
    if args.json {
        out.json(&reply.markers)?;
    } else {
        out.table(&table(&reply.markers))?;
    }
    out.finish()
}

/// One line a marker.
pub fn table(markers: &[MarkerRecord]) -> Table {
    let mut table = Table::new(&["TYPE", "STATUS", ">START", ">END", ">FRAMES", ">CONFIDENCE"]);
    for marker in markers {
        table.push([
            marker.event_type.clone(),
            marker.status.clone(),
            clock(marker.start_pts_ms),
            clock(marker.end_pts_ms),
            match marker.start_frame == marker.end_frame {
                true => marker.start_frame.to_string(),
                false => format!("{}-{}", marker.start_frame, marker.end_frame),
            },
            format!("{:.3}", marker.confidence),
        ]);
    }
    table
}
