//! Name of this server, for receivers that serve several servers.

use redb::TableDefinition;

use crate::base::meta_store::{MetaStore, MetaStoreError};

/// Returns the server's name from `ledger`; creates it if missing.
pub fn name(ledger: &MetaStore) -> Result<String, MetaStoreError> {
    const NODE: TableDefinition<'_, &str, &str> = TableDefinition::new("node");
    let known = ledger.read(NODE, |table| Ok(table.get("id")?.map(|id| id.value().to_owned())))?;
    if let Some(known) = known {
        return Ok(known);
    }
    let digits = crate::base::hex(&crate::base::random_bytes::<16>());
    let made = format!("node-{digits}");
    ledger.write(|change| {
        change.open_table(NODE)?.insert("id", made.as_str())?;
        Ok(())
    })?;
    Ok(made)
}
