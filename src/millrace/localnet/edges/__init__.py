"""The outside of the local chain: HTTP, observers that tell a notifier, gossip peers, faults on request."""
