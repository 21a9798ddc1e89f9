//! Prints the time of measuring on a Vulkan adapter, upload and readback included.
//!
//! Usage: `wgpu_cost [PART OF THE ADAPTER'S NAME]`; by default the first GPU. Exits with 2 if there is no
//! such adapter and with 1 on another failure.

#[path = "../../benches/functions/cost.rs"]
mod cost;

use gate::device_batch::OpenError;
use shaders::{AdapterChoice, WgpuBackend};

fn main() {
    let name = std::env::args().nth(1);
    let choice = name.as_deref().map_or(AdapterChoice::Hardware, AdapterChoice::Named);
    match WgpuBackend::open(choice) {
        Ok(mut measurer) => {
            println!("{}", measurer.adapter());
            cost::rows(&mut measurer, 5);
        }
        Err(error) => {
            eprintln!("wgpu_cost: {error}");
            let is_missing = matches!(error, OpenError::Missing(_));
            std::process::exit(if is_missing { 2 } else { 1 });
        }
    }
}
