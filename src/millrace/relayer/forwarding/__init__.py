"""Edges: relayers without keys that hold the sockets of clients and forward what has to be signed."""
