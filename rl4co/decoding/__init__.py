"""From logits to actions: filters, strategies, the decode loop, replay of all steps at once."""
