"""LKH-3 as an external program."""
