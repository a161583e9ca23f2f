"""millrace: swap routing, sponsored relaying and event delivery for the MultiversX chain."""
