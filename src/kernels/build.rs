//! Tells the linker where the CUDA libraries are. `cuda/setup` makes a folder of stand-ins, so that the binary
//! builds where there is no CUDA and starts where there is no driver; without `CUDA_LINK_DIR` the toolkit's own
//! are found by its crates.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=CUDA_LINK_DIR");
    if let Ok(folder) = std::env::var("CUDA_LINK_DIR") {
        println!("cargo:rustc-link-search=native={folder}");
    }
}
