"""What is traded on the local chain, by whom and at which prices."""
