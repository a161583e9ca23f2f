"""Builds the pool document from the chain itself, through a gateway's contract-query endpoint."""
