//! Parse, run, exit code.

use std::env;
use std::process::ExitCode;

fn main() -> ExitCode {
    number_cards_by_bus();
    muster::cli::main()
}

/// NVML, which says what is free on a card, numbers cards by bus; CUDA takes the fastest first unless it is told to
/// number them so as well. It looks when it is first asked for anything.
#[expect(
    unsafe_code,
    reason = "whoever sets a variable promises that no other thread looks"
)]
fn number_cards_by_bus() {
    const ORDER: &str = "CUDA_DEVICE_ORDER";
    if env::var_os(ORDER).is_none() {
        // SAFETY: `main` does this first, so that there is no other thread.
        unsafe { env::set_var(ORDER, "PCI_BUS_ID") };
    }
}
