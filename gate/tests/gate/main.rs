//! External tests of the gate: every gate backend agrees, signals are local and in range, nothing allocates,
//! known cuts are found.

mod allocation;
mod any;
mod cuts;
mod episodes;
mod measurers;
mod raw;
mod real;
mod window;
