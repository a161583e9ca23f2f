"""What the notifier keeps on disk before it answers: events, deduplication state, dead letters."""
