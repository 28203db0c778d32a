//! Exponential moving average of all floating-point values of a network.
