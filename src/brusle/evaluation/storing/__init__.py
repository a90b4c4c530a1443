"""What a run folder holds, and how it is read, checked and exported."""
