"""Keys, and the process of its own that alone holds them."""
