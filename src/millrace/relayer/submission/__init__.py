"""A batch on its way: taken, examined, journalled, co-signed, sent."""
