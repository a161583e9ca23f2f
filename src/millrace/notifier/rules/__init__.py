"""What events mean, without I/O: deduplication, normalisation, filters, the consumers' protocol."""
