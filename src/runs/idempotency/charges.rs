//! Charges owners for their stored responses.

use std::{collections::HashMap, sync::Arc};

use super::records;
use crate::base::{
    keys::Principal,
    meta_store::{MetaStore, MetaStoreError},
    quota::Quota,
};
use parking_lot::Mutex;

/// Bytes charged so far, by owner.
pub(super) struct Charges {
    ledger: MetaStore,
    quota: Arc<Quota>,
    charged: Mutex<HashMap<Principal, u64>>,
}

impl Charges {
    /// Creates the charges, with nothing charged.
    pub(super) fn new(ledger: MetaStore, quota: Arc<Quota>) -> Charges {
        Charges { ledger, quota, charged: Mutex::default() }
    }

    /// Charges `owner` for the current size of its records, even beyond its quota.
    pub(super) fn settle(&self, owner: &Principal) -> Result<(), MetaStoreError> {
        // Held while reading, so that the latest size is charged last. Every change is one insert
        // or remove: the map stays usable after a panic.
        let mut charged = self.charged.lock();
        let now = self.ledger.read(|view| records::bytes_of(view, owner))?;
        let before = charged.remove(owner).unwrap_or(0);
        if now > 0 {
            charged.insert(owner.clone(), now);
        }
        self.quota.record(owner, now.saturating_sub(before));
        self.quota.release(owner, before.saturating_sub(now));
        Ok(())
    }
}
