"""Policy families: what all methods of one kind share."""
