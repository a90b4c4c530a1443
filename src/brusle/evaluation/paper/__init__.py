"""The paper's numbers, its tables as presets, and how they are reproduced."""
