//! Learning rate, momentum and accumulation of every step.
