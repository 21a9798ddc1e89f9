//! `sightline webhooks`: manages the URLs that events of a run, or of all the caller's runs, are sent to.

use serde_json::{Value, json};

use crate::{
    client::{ApiClient, QUICK, ServerArgs, given, run_path},
    error::CliError,
    output::{StdoutWriter, TextTable, joined, or_dash, printable, text},
};

#[derive(clap::Args)]
pub struct WebhooksArgs {
    #[command(subcommand)]
    command: WebhooksCommand,
    /// Webhooks of this run; without it, of all your runs
    #[arg(long, global = true, value_name = "RUN")]
    run: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
    /// Print the server's JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(clap::Subcommand)]
enum WebhooksCommand {
    /// List webhooks
    List,
    /// Have events sent to a URL; prints the secret that they are signed with, once
    Create {
        /// An https URL of a public host, or of one in SERVICE_EGRESS_ALLOWED_NETWORKS of the server
        url: String,
        /// Only events of these kinds
        #[arg(long, value_name = "KIND", value_delimiter = ',')]
        kinds: Vec<String>,
        /// Description in your own words
        #[arg(long)]
        description: Option<String>,
    },
    /// Delete a webhook
    Delete {
        /// Webhook id
        webhook: String,
    },
    /// List events whose delivery to a webhook failed for good
    DeadLetters {
        /// Webhook id
        webhook: String,
    },
    /// Retry the deliveries that failed for good
    Redeliver {
        /// Webhook id
        webhook: String,
    },
}

pub fn run(args: &WebhooksArgs) -> Result<(), CliError> {
    let client = ApiClient::new(&args.server)?;
    let base = match &args.run {
        Some(run) => run_path(run, "/webhooks")?,
        None => "v1/webhooks".to_owned(),
    };
    let of = |webhook: &str, rest: &str| {
        let is_id = webhook.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let wrong = || CliError::Usage(format!("no webhook id: {}", printable(webhook)));
        is_id.then(|| format!("{base}/{webhook}{rest}")).ok_or_else(wrong)
    };
    let reply: Value = match &args.command {
        WebhooksCommand::List => client.get(&base, &[])?,
        WebhooksCommand::Create { url, kinds, description } => {
            let kinds = (!kinds.is_empty()).then_some(kinds);
            let body = json!({ "url": url, "kinds": kinds, "description": description });
            client.post(&base, &given(body), QUICK)?
        }
        WebhooksCommand::Delete { webhook } => client.delete(&of(webhook, "")?)?,
        WebhooksCommand::DeadLetters { webhook } => {
            client.get(&of(webhook, "/dead-letters")?, &[])?
        }
        WebhooksCommand::Redeliver { webhook } => {
            client.post(&of(webhook, "/redeliver")?, &json!({}), QUICK)?
        }
    };
    let mut out = StdoutWriter::stdout();
    match &args.command {
        _ if args.json => out.json(&reply)?,
        WebhooksCommand::List => out.table(&listed(&reply))?,
        WebhooksCommand::DeadLetters { .. } => out.table(&dead(&reply))?,
        WebhooksCommand::Create { .. } => {
            for name in ["webhook_id", "url", "secret"] {
                out.line(format!("{name:<12}{}", text(&reply[name])))?;
            }
        }
        WebhooksCommand::Delete { webhook } => out.line(format!("{webhook} deleted"))?,
        WebhooksCommand::Redeliver { webhook } => {
            out.line(format!("{webhook} is sent them again"))?
        }
    }
    out.finish()
}

fn listed(reply: &Value) -> TextTable {
    let row = |hook: &Value| {
        [
            text(&hook["webhook_id"]),
            text(&hook["status"]),
            text(&hook["dead_letters"]),
            joined(&hook["kinds"], "all"),
            text(&hook["url"]),
            or_dash(&hook["last_error"]["message"]),
        ]
    };
    let columns = ["WEBHOOK", "STATUS", ">DEAD", "KINDS", "URL", "LAST ERROR"];
    TextTable::of(columns, reply["webhooks"].as_array().into_iter().flatten().map(row))
}

fn dead(reply: &Value) -> TextTable {
    let row = |letter: &Value| ["seq", "kind", "attempts", "error"].map(|name| text(&letter[name]));
    let letters = reply["dead_letters"].as_array().into_iter().flatten();
    TextTable::of([">SEQ", "KIND", ">ATTEMPTS", "ERROR"], letters.map(row))
}
