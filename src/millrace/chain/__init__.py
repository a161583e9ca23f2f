"""What the chain is: values and codecs. No I/O, no clock, no service."""
