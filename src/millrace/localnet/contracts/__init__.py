"""The contracts of the local chain. Prices and amounts come from `millrace.dex`; here is what moves them."""
