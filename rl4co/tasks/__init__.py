"""What one does with the library: train and evaluate."""
