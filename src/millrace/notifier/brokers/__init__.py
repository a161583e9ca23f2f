"""Delivery to message brokers, and the agreement of notifiers that share one."""
