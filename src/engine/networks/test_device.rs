//! The device that tests of networks run on: the CPU, or the first GPU if `MUSTER_TEST_DEVICE` is `cuda`, as on the
//! machine that `./test gpu` prepares for. There products round their operands to the type of the weights, so that networks
//! of f16 are 1e-3 away from the reference, and the last digits depend on the size of a batch.

use std::sync::LazyLock;

use candle_core::Device;

const VARIABLE: &str = "MUSTER_TEST_DEVICE";

pub fn device() -> &'static Device {
    static DEVICE: LazyLock<Device> = LazyLock::new(|| match gpu() {
        None => Device::Cpu,
        Some(index) => muster_kernels::open_gpu(index).unwrap(),
    });
    &DEVICE
}

/// The GPU that tests run on, if they do.
pub fn gpu() -> Option<usize> {
    match std::env::var(VARIABLE).as_deref() {
        Err(_) | Ok("cpu") => None,
        Ok("cuda") => Some(0),
        Ok(other) => panic!("{VARIABLE} is {other:?}, but must be cpu or cuda"),
    }
}
