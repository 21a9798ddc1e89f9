//! The gate from outside: every measurer agrees, signals are local and in range, nothing
//! allocates, known cuts are found.

mod allocation;
mod any;
mod cuts;
mod measurers;
mod raw;
mod real;
mod window;
