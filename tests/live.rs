//! Live video from clients that are processes of their own, through a real server, to its timeline.
#![allow(missing_docs)]

mod support;

#[path = "live/activity.rs"]
mod activity;
#[path = "live/addresses.rs"]
mod addresses;
#[path = "live/apart.rs"]
mod apart;
#[path = "live/browser.rs"]
mod browser;
#[path = "live/capacity.rs"]
mod capacity;
#[path = "live/described.rs"]
mod described;
#[path = "live/health.rs"]
mod health;
#[path = "live/loss.rs"]
mod loss;
#[path = "live/memory.rs"]
mod memory;
#[path = "live/nodes.rs"]
mod nodes;
#[path = "live/receiver.rs"]
mod receiver;
#[path = "live/start.rs"]
mod start;
