//! Chain against scripted backends: every failure, the fallbacks, and the time limits.
#![allow(missing_docs)]

#[path = "chain/budget.rs"]
mod budget;
#[path = "chain/failures.rs"]
mod failures;
#[path = "chain/order.rs"]
mod order;
#[path = "chain/probe.rs"]
mod probe;
#[path = "chain/support.rs"]
mod support;
#[path = "chain/tiers.rs"]
mod tiers;
#[path = "chain/tls.rs"]
mod tls;
