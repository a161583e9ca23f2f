"""What is in flight, who owes what, and what each key may still spend."""
