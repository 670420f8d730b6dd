//! Parse, run, exit code.

use std::env;
use std::process::ExitCode;

fn main() -> ExitCode {
    number_cards_by_bus();
    outlive_file_size_limits();
    muster::cli::main()
}

/// NVML, which says what is free on a card, numbers cards by bus; CUDA takes the fastest first unless it is told to
/// number them so as well. It looks when it is first asked for anything.
#[expect(
    unsafe_code,
    reason = "set_var requires that no other thread reads the environment"
)]
fn number_cards_by_bus() {
    const ORDER: &str = "CUDA_DEVICE_ORDER";
    if env::var_os(ORDER).is_none() {
        // SAFETY: `main` does this first, so that there is no other thread.
        unsafe { env::set_var(ORDER, "PCI_BUS_ID") };
    }
}

/// A write past the limit on the size of files is an error that its writer tells, but comes with a signal that ends
/// every process that has not said otherwise.
#[expect(unsafe_code, reason = "signal() is a C function")]
fn outlive_file_size_limits() {
    // SAFETY: no handler runs, the signal is ignored.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}
