//! The messages of the ONNX format that we write, as `prost` structs.
