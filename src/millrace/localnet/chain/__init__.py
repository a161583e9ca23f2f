"""The chain machine: admission, mempools, execution across shards, blocks, finality, reverts. No clock, no socket."""
