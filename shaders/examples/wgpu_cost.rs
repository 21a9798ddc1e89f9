//! Prints what measuring costs on a Vulkan adapter, upload and readback included.
//!
//! `wgpu_cost [PART OF THE ADAPTER'S NAME]`; without it, on the first GPU. Ends with 2 where there is no
//! such adapter, with 1 where it fails.

#[path = "../../benches/functions/cost.rs"]
mod cost;

use shaders::{AdapterChoice, WgpuBackend, WgpuError};

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
            let is_missing = matches!(error, WgpuError::NoAdapter { .. });
            std::process::exit(if is_missing { 2 } else { 1 });
        }
    }
}
