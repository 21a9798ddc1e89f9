//! `sightline jobs`: lists, shows and cancels the jobs of a run.

use serde_json::Value;

use crate::{
    client::{ApiClient, ServerArgs, run_path},
    error::CliError,
    output::{StdoutWriter, TextTable, printable, text},
    runs::under_way,
};

#[derive(clap::Args)]
pub struct JobsArgs {
    /// Run id
    run: String,
    /// Cancel this job: what it recorded stays, the run goes on
    #[arg(long, value_name = "JOB", conflicts_with = "show")]
    cancel: Option<String>,
    /// Show this job with its result
    #[arg(long, value_name = "JOB")]
    show: Option<String>,
    /// Print the server's JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub fn run(args: &JobsArgs) -> Result<(), CliError> {
    let client = ApiClient::new(&args.server)?;
    let path = |job: &str| {
        let is_id =
            !job.is_empty() && job.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let wrong = || CliError::Usage(format!("no job id: {}", printable(job)));
        is_id.then(|| run_path(&args.run, &format!("/jobs/{job}"))).ok_or_else(wrong)?
    };
    let mut out = StdoutWriter::stdout();
    let reply: Value = match (&args.cancel, &args.show) {
        (Some(job), _) => client.delete(&path(job)?)?,
        (_, Some(job)) => client.get(&path(job)?, &[])?,
        _ => client.get(&run_path(&args.run, "/jobs")?, &[])?,
    };
    if args.json {
        out.json(&reply)?;
    } else if let Some(jobs) = reply["jobs"].as_array() {
        let row = |job: &Value| {
            [text(&job["job_id"]), text(&job["started_at"]), under_way(job).unwrap_or_default()]
        };
        out.table(&TextTable::of(["JOB", "STARTED", "PROGRESS"], jobs.iter().map(row)))?;
    } else {
        out.line(under_way(&reply).unwrap_or_else(|| text(&reply)))?;
        for (name, value) in [("result", &reply["result"]), ("error", &reply["error"])] {
            if !value.is_null() {
                out.line(format!("{name}:"))?;
                out.json(value)?;
            }
        }
    }
    out.finish()
}
