"""What every process of millrace shares: settings, logs, signals, HTTP and WebSocket shells.

Knows nothing of the chain or of any service.
"""
