"""Searches over the decode loop: one file each, registered as decode types under its name."""
