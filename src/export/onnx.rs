//! A deploy-form network as an ONNX model.
