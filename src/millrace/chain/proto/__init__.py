"""Protobuf messages, compiled from the .proto files beside this one by `./run proto`."""
