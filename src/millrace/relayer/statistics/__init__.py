"""Gas, network and history statistics, and the two streams of them."""
