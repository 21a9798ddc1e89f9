//! Checks of the machine: isolation of media workers, devices, programs.

use std::{fs, path::Path};

use worker::GateBackend;

use super::Check;
use crate::{api::App, record::worker_backends::WorkerCapabilities};

pub fn checks(app: &App) -> Vec<Check> {
    let mut checks = vec![sandbox(&app.workers), decode(&app.workers), gate(&app.workers)];
    for tool in app.settings.tools.iter().filter(|tool| tool.path.is_none()) {
        let advice = format!("install FFmpeg, or name it in {}", tool.variable);
        checks.push(Check::advice(tool.name, "not found on PATH", &advice));
    }
    checks
}

fn sandbox(workers: &WorkerCapabilities) -> Check {
    let name = "sandbox";
    match &workers.0 {
        Ok(found) if found.sandbox.is_full() => {
            let tried = format!("{} attempts at the start were refused", found.sandbox.refused);
            Check::ok(name, format!("media workers read no file and reach no network: {tried}"))
        }
        Ok(found) => Check::advice(
            name,
            format!("in part: {}", found.sandbox),
            "a kernel with landlock and seccomp closes it; a device's driver widens it",
        ),
        Err(error) => Check::problem(
            name,
            format!("no media worker starts: {error}"),
            "SERVICE_SANDBOX=best-effort reads media behind what the kernel has",
        ),
    }
}

fn decode(workers: &WorkerCapabilities) -> Check {
    device("decode", workers.backend().as_str(), workers.passed_over())
}

fn gate(workers: &WorkerCapabilities) -> Check {
    let used = match workers.gate() {
        GateBackend::Cpu => "cpu, which measures unless a device decodes or is named",
        device => device.as_str(),
    };
    device("gate", used, workers.gate_passed_over())
}

/// Reports the backend `used` and the faster ones passed over; advises if a GPU is idle.
fn device(name: &str, used: &str, passed: impl Iterator<Item = (&'static str, String)>) -> Check {
    let passed: Vec<String> = passed.map(|(backend, why)| format!("{backend}: {why}")).collect();
    if passed.is_empty() {
        return Check::ok(name, used);
    }
    let said = format!("{used}; passed over: {}", passed.join("; "));
    match has_device() {
        false => Check::ok(name, said),
        true => {
            let advice = "a GPU is here: install its driver's libraries for the server's user, and in a \
                          container give it the device";
            Check::advice(name, said, advice)
        }
    }
}

fn has_device() -> bool {
    let renders = fs::read_dir("/dev/dri").into_iter().flatten().flatten();
    let mut renders = renders.map(|entry| entry.file_name());
    Path::new("/dev/nvidiactl").exists()
        || renders.any(|name| name.to_string_lossy().starts_with("renderD"))
}
