"""From logits to actions: filters, strategies, the decode loop, replay of all steps at once."""

from rl4co.decoding import sgbs as sgbs  # registers its decode type
