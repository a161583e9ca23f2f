"""What clients send and are told, as values: messages, reasons, topics, and JSON that is read strictly."""
