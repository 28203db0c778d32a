//! Values of a new network's parameters.
