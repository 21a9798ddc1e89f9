//! Live video from clients that are processes of their own, through a real server, to its timeline.

mod activity;
mod addresses;
mod apart;
mod browser;
mod capacity;
mod described;
mod health;
mod loss;
mod memory;
mod nodes;
mod receiver;
