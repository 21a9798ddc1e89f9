//! The gate from outside: every measurer agrees, nothing allocates, no input panics.

mod measurers;
