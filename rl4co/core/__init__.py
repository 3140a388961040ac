"""Foundations: errors, registries, random streams, shapes and pure tensor functions."""
