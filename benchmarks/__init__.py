"""Speed, memory and learning comparisons of this package with the published rl4co."""
