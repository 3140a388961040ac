"""What only code in the published style needs, under the published names and signatures.

Each module has the names that :mod:`rl4co.compat.table` sends to it. New code uses what these
are made of.
"""
