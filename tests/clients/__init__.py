"""Clients of live services, as far as they read an answer: what several packages' tests parse answers with."""
