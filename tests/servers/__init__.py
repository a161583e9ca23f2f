"""Servers that tests start: processes of their own on free ports, which end with the tests."""
