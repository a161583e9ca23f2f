"""The doors for clients: WebSocket sessions, REST, limits and fan-out."""
