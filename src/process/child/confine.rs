//! Seccomp filter of the child: computing, memory, and the open pipes. No files, network, other processes or new
//! threads.

use std::io;

/// Takes every other right from all threads of this process, for good. Threads and files that are needed must be there.
#[cfg(target_os = "linux")]
pub fn confine() -> io::Result<()> {
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter_all_threads};

    let architecture = std::env::consts::ARCH
        .try_into()
        .map_err(io::Error::other)?;
    // Refused calls return ENOSYS like on an older kernel, because libraries handle that.
    let refused = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    let filter = SeccompFilter::new(rules()?, refused, SeccompAction::Allow, architecture);
    let program: BpfProgram = filter
        .and_then(TryInto::try_into)
        .map_err(io::Error::other)?;
    apply_filter_all_threads(&program).map_err(io::Error::other)
}

#[cfg(target_os = "linux")]
fn rules() -> io::Result<std::collections::BTreeMap<i64, Vec<seccompiler::SeccompRule>>> {
    use rustix::process::getpid;
    use seccompiler::{SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};

    const ALLOWED: &[libc::c_long] = &[
        libc::SYS_brk,
        libc::SYS_clock_getres,
        libc::SYS_clock_gettime,
        libc::SYS_clock_nanosleep,
        libc::SYS_close,
        libc::SYS_exit,
        libc::SYS_exit_group,
        libc::SYS_fstat,
        libc::SYS_futex,
        libc::SYS_getpid,
        libc::SYS_getpriority,
        libc::SYS_getrandom,
        libc::SYS_getrusage,
        libc::SYS_gettid,
        libc::SYS_lseek,
        libc::SYS_madvise,
        libc::SYS_mmap,
        libc::SYS_mprotect,
        libc::SYS_mremap,
        libc::SYS_munmap,
        libc::SYS_nanosleep,
        libc::SYS_ppoll,
        libc::SYS_pread64,
        libc::SYS_read,
        libc::SYS_readv,
        libc::SYS_restart_syscall,
        libc::SYS_rseq,
        libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigreturn,
        libc::SYS_sched_getaffinity,
        libc::SYS_sched_yield,
        libc::SYS_set_robust_list,
        libc::SYS_setpriority,
        libc::SYS_sigaltstack,
        libc::SYS_write,
        libc::SYS_writev,
    ];
    // A process that takes too long or breaks its heap sends itself a signal.
    const SIGNALS: &[libc::c_long] = &[libc::SYS_kill, libc::SYS_tgkill];

    let own = u64::from(getpid().as_raw_nonzero().get().unsigned_abs());
    let to_itself = || {
        let own = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, own);
        let rule = own.and_then(|own| SeccompRule::new(vec![own]));
        rule.map_err(io::Error::other)
    };
    let allowed = ALLOWED.iter().map(|call| Ok((*call, Vec::new())));
    let signals = SIGNALS.iter().map(|call| Ok((*call, vec![to_itself()?])));
    allowed.chain(signals).collect()
}

/// Seccomp exists only on Linux; elsewhere the limits on memory and time remain.
#[cfg(not(target_os = "linux"))]
pub fn confine() -> io::Result<()> {
    Ok(())
}
