"""Methods of the literature: one folder per method."""
