"""Neural building blocks: tensors in, tensors out; no environment in sight."""
