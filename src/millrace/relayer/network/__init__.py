"""The ways to the chain: gossip, the chain API, and what is asked of it."""
