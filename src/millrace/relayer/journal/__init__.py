"""What the relayer remembers on disk, written before anything is acted on."""
