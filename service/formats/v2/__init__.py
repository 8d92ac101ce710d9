"""The Open Inference Protocol's requests and answers, as bytes and tensors."""
