"""Cards of pretrained models: what is measured, the measurements, and their text."""
