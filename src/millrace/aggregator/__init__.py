"""The quote service: a live market snapshot, route search, and ready transaction payloads over REST."""
