"""The numbers that come out of stored rows."""
