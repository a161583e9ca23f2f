"""Python clients of the public interfaces: quotes over REST, submissions and streams over WebSocket."""

from millrace.client.aggregator import AggregatorClient, QuoteError
from millrace.client.relayer import RelayerClient, RelayerError

__all__ = ["AggregatorClient", "QuoteError", "RelayerClient", "RelayerError"]
