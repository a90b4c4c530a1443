"""Victims behind an API: services that answer over HTTP, asked under terms that the user sets."""
