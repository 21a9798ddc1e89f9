//! Drops all privileges for good, so that workers of a server started as root may do no more than those of an
//! ordinary user.

use std::io;

use rustix::{
    io::Errno,
    thread::{
        CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
        clear_ambient_capability_set, remove_capability_from_bounding_set, set_capabilities,
        set_no_new_privs,
    },
};

/// Drops all capabilities, and every way to regain one.
pub(super) fn give_up() -> io::Result<()> {
    set_no_new_privs(true)?;
    if capabilities(None)?.effective.contains(CapabilitySet::SETPCAP) {
        // The bounding set limits the capabilities that root gets from executing a program.
        give_up_bounding_set()?;
    }
    clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    Ok(set_capabilities(None, sets)?)
}

fn give_up_bounding_set() -> io::Result<()> {
    for number in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        match capability_is_in_bounding_set(capability) {
            Ok(true) => remove_capability_from_bounding_set(capability)?,
            Ok(false) => {}
            // The kernel has no further capability.
            Err(Errno::INVAL) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
