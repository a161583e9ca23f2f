"""The console: a page to look at, and the one origin under which it finds all services."""
