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
    let markers = fetch(&client, &args.run, &query)?;
    let mut out = Out::stdout();
    if args.json {
        out.json(&markers)?;
    } else {
        out.table(&table(&markers))?;
    }
    out.finish()
}

/// Every marker of `run` that the filters of `query` let through.
pub fn fetch(
    client: &Client,
    run: &str,
    query: &[(&str, String)],
) -> Result<Vec<MarkerRecord>, CliError> {
    let mut markers = Vec::new();
    let path = client.run_path(run, "/markers")?;
    client.pages(&path, query, |page: MarkersReply| markers.extend(page.markers))?;
    Ok(markers)
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
