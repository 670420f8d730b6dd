//! Stands where CUDA is not built in: there is no kernel to try.

pub fn gpu_faults() -> Vec<String> {
    Vec::new()
}
