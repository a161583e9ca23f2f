"""How the four exchanges price trades, in exact integers; the pool document; the aggregator contract."""
