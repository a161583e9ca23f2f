"""The whole system on one machine: start it, keep it running, show it at work, end it without a trace."""
