"""What blocks of either format mean for a transaction: read, joined and followed until it is final. No I/O."""
