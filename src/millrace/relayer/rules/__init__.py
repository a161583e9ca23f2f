"""What may be signed and paid for, without I/O: the stages of a check, the policy and its explanation."""
