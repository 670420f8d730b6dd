//! Compiles our CUDA kernels and gives the linker the folders of the CUDA libraries. `cuda/setup` makes a folder of
//! stub libraries, so that the binary builds without CUDA and starts without a driver; without `CUDA_LINK_DIR` the
//! crates find the toolkit's libraries.

use std::path::Path;
use std::process::Command;

const KERNELS: &str = "cuda/kernels.cu";
/// Parts of the same program.
const INCLUDED: &str = "cuda/block_products.cuh";

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

/// GPUs with precompiled machine code, so that their owners wait for no compiler at the first prompt; later ones use
/// PTX, compiled by the driver.
const GPUS: [&str; 5] = ["80", "86", "89", "90", "120"];

fn compile() {
    println!("cargo:rerun-if-changed={KERNELS}");
    println!("cargo:rerun-if-changed={INCLUDED}");
    println!("cargo:rerun-if-env-changed=NVCC");
    let nvcc = std::env::var("NVCC").unwrap_or_else(|_| "nvcc".to_owned());
    let folder = std::env::var("OUT_DIR").unwrap_or_default();
    let mut command = Command::new(&nvcc);
    command.args([
        "-fatbin",
        "-O3",
        "-std=c++17",
        "--compress-mode=size",
        "--threads=0",
    ]);
    for gpu in GPUS {
        command.arg(format!("-gencode=arch=compute_{gpu},code=sm_{gpu}"));
    }
    command.arg("-gencode=arch=compute_80,code=compute_80");
    command
        .arg("-o")
        .arg(Path::new(&folder).join("kernels.fatbin"));
    match command.arg(KERNELS).status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{nvcc} could not compile {KERNELS}: {status}"),
        Err(error) => panic!(
            "{nvcc}, which compiles {KERNELS}, did not start: {error}; put it on PATH, or name it by NVCC"
        ),
    }
}
