//! Distribution focal loss: its value, gradient, and decoding.
