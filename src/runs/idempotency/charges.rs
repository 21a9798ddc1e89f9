//! Charges of owners for the answers that are kept for them.

use std::{collections::HashMap, sync::Arc};

use super::records;
use crate::base::{
    keys::Principal,
    meta_store::{MetaStore, MetaStoreError},
    quota::Quota,
};
use parking_lot::Mutex;

/// Bytes that have been charged, by owner.
pub(super) struct Charges {
    ledger: MetaStore,
    quota: Arc<Quota>,
    charged: Mutex<HashMap<Principal, u64>>,
}

impl Charges {
    /// Nothing yet.
    pub(super) fn new(ledger: MetaStore, quota: Arc<Quota>) -> Charges {
        Charges { ledger, quota, charged: Mutex::default() }
    }

    /// Charges `owner` for what its records take now, whatever the quotas say.
    pub(super) fn settle(&self, owner: &Principal) -> Result<(), MetaStoreError> {
        // Held while looking, so that what is charged is what was there last; every change is one
        // insert or remove: a panic leaves the map usable.
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
