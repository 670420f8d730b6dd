//! One test binary; one module per capability, named like the resource it is about.
