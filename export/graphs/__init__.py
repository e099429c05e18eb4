"""Write ONNX graphs: fp16, packed, int8."""
