//! Result of the kernel self-test on a GPU.

/// The kernels of a GPU, compared with the CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuTrial {
    /// Index of the GPU.
    pub gpu: usize,
    /// Number of tested operations.
    pub kernels: usize,
    /// Names of the failed operations.
    pub failed: Vec<&'static str>,
    /// The same with the reasons.
    pub faults: Vec<String>,
    /// Read from the record of an earlier start.
    pub is_kept: bool,
}
