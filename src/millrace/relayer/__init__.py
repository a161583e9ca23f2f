"""The relayer: checks, sponsors and broadcasts transactions, and streams what becomes of them.

`protocol`, `rules` and `blocks` are values and rules without I/O; `journal`, `signing`, `ledger`, `network`,
`statistics` and `events` own what their names say; `submission` and `gateway` are what clients meet; `app` wires them.
"""
