//! `sightline markers`: the markers of a run; also the table that `analyze` and `demo` print.

use crate::{
    client::{ApiClient, ServerArgs, run_path},
    error::CliError,
    output::{StdoutWriter, TextTable, clock},
    wire::MarkerRecord,
    words,
};

/// Type of markers for spans without an event.
pub const NOTHING: &str = "context_observation";

#[derive(clap::Args)]
#[command(after_long_help = words::of_markers())]
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
    /// Markers of the gate, of the model where one spoke, or of both [default: as the analysis has them]
    #[arg(long, value_parser = ["gate", "model", "all"])]
    origin: Option<String>,
    /// Markers of this analysis, or of "all", instead of the newest
    #[arg(long, value_name = "ID")]
    analysis: Option<String>,
    /// Also show those that only say that nothing happened
    #[arg(long)]
    all: bool,
    /// Print a JSON array of all of them
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub fn run(args: &MarkersArgs) -> Result<(), CliError> {
    let client = ApiClient::new(&args.server)?;
    let number = |value: Option<u64>| value.map(|value| value.to_string());
    let filters = [
        ("status", args.status.clone()),
        ("event_type", args.event_type.clone()),
        ("from_frame", number(args.from_frame)),
        ("to_frame", number(args.to_frame)),
        ("origin", args.origin.clone()),
        ("analysis_id", args.analysis.clone()),
    ];
    let query: Vec<(&str, String)> =
        filters.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    let markers = fetch(&client, &args.run, &query)?;
    let mut out = StdoutWriter::stdout();
    if args.json {
        out.json(&markers)?;
    } else {
        // A type asked for by name is shown.
        print(&mut out, &markers, args.all || args.event_type.is_some())?;
    }
    out.finish()
}

/// Prints a table of markers; without `all` leaves out those without an event.
pub fn print(out: &mut StdoutWriter, markers: &[MarkerRecord], all: bool) -> Result<(), CliError> {
    let shown = markers.iter().filter(|marker| all || marker.event_type != NOTHING);
    let shown: Vec<&MarkerRecord> = shown.collect();
    out.table(&TextTable::of(
        ["TYPE", "STATUS", ">START", ">END", ">FRAMES", ">CONFIDENCE"],
        shown.iter().map(|marker| row(marker)),
    ))?;
    out.flush()?;
    match markers.len() - shown.len() {
        0 => {}
        left => note!("sightline: {left} of {NOTHING} are left out (--all)"),
    }
    Ok(())
}

/// Fetches the markers of `run` that match the filters in `query`.
pub fn fetch(
    client: &ApiClient,
    run: &str,
    query: &[(&str, String)],
) -> Result<Vec<MarkerRecord>, CliError> {
    client.pages(&run_path(run, "/markers")?, query, "/markers")
}

fn row(marker: &MarkerRecord) -> [String; 6] {
    [
        marker.event_type.clone(),
        marker.status.clone(),
        clock(marker.start_pts_ms),
        clock(marker.end_pts_ms),
        match marker.start_frame == marker.end_frame {
            true => marker.start_frame.to_string(),
            false => format!("{}-{}", marker.start_frame, marker.end_frame),
        },
        format!("{:.3}", marker.confidence),
    ]
}
