"""Open Inference Protocol v2: bodies to checked requests, results to tensors."""
