"""What one does with the library: train, evaluate. Only this layer and the command line know Hydra."""
