"""The relayer: checks, sponsors and broadcasts transactions, and streams what becomes of them.

Values and rules are pure (`reasons`, `messages`, `stages`, `policy`, `inflight`, `tracker`, `subscriptions`,
`limits`); the shell owns sockets, clocks, the journal and the signing process; `app` wires them.
"""
