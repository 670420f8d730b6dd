//! Compiles our kernels for GPUs, and tells the linker where the CUDA libraries are. `cuda/setup` makes a folder of
//! stand-ins, so that the binary builds where there is no CUDA and starts where there is no driver; without
//! `CUDA_LINK_DIR` the toolkit's own are found by its crates.

use std::path::Path;
use std::process::Command;

const KERNELS: &str = "cuda/kernels.cu";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=CUDA_LINK_DIR");
    println!("cargo:rustc-check-cfg=cfg(stand_ins)");
    if let Ok(folder) = std::env::var("CUDA_LINK_DIR") {
        println!("cargo:rustc-cfg=stand_ins");
        println!("cargo:rustc-link-search=native={folder}");
    }
    if std::env::var_os("CARGO_FEATURE_CUDA").is_some() {
        compile();
    }
}

/// To PTX, which drivers compile for the GPU at hand.
fn compile() {
    println!("cargo:rerun-if-changed={KERNELS}");
    println!("cargo:rerun-if-env-changed=NVCC");
    let nvcc = std::env::var("NVCC").unwrap_or_else(|_| "nvcc".to_owned());
    let folder = std::env::var("OUT_DIR").unwrap_or_default();
    let mut command = Command::new(&nvcc);
    command.args(["--ptx", "-arch=compute_80", "-O3", "-std=c++17", "-o"]);
    command
        .arg(Path::new(&folder).join("kernels.ptx"))
        .arg(KERNELS);
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{nvcc} could not compile {KERNELS}: {status}"),
        Err(error) => panic!(
            "{nvcc}, which compiles {KERNELS}, did not start: {error}; put it on PATH, or name it by NVCC"
        ),
    }
}
