//! CUDA gate backend on a device and on a shim driver, and its checked-in PTX.

#[path = "../../../gate/tests/gate/any.rs"]
mod any;
#[path = "../../../tests/support/cuda_shim.rs"]
mod cuda_shim;
mod device;
mod failing;
mod ptx;
#[path = "../../../tests/support/python.rs"]
mod python;
#[path = "../../../gate/tests/gate/raw.rs"]
mod raw;
#[path = "../../../gate/tests/gate/real.rs"]
mod real;
mod shim;
#[path = "../../../tests/support/skip.rs"]
mod skip;
