//! The queue, placement, leases, retries: a state machine without I/O.
