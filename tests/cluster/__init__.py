"""The whole cluster under faults, and the checker of what its clients saw."""
