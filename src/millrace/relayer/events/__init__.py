"""The notifier's stream, and what clients and ledger are told of it."""
