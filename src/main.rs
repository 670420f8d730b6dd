//! Parse, run, exit code.

use std::env;
use std::process::ExitCode;

fn main() -> ExitCode {
    number_cards_by_bus();
    ignore_signals();
    muster::cli::main()
}

/// NVML numbers GPUs by bus, but CUDA puts the fastest first unless this variable says otherwise. CUDA reads it at its
/// first use.
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

/// Signals that end every process that has not said otherwise, and mean nothing here. A write past the limit on the size of
/// files comes with SIGXFSZ, and is an error that its writer tells. Child processes inherit this.
#[expect(unsafe_code, reason = "signal() is a C function")]
fn ignore_signals() {
    for number in [libc::SIGXFSZ, libc::SIGUSR1, libc::SIGUSR2] {
        // SAFETY: no handler runs, the signal is ignored.
        unsafe { libc::signal(number, libc::SIG_IGN) };
    }
}
