"""A search as a film of a few seconds: pixels appear, scores move, and the search learns.

    film = film_of(run, chosen)
    write_film(film, "cat.webp")

All of it comes from a stored trace; nothing is asked and nothing is run.
"""

from brusle.report.film.files import Written, require_film, write_film
from brusle.report.film.story import Film, film_of, film_of_result, traced

__all__ = [
    "Film",
    "Written",
    "film_of",
    "film_of_result",
    "require_film",
    "traced",
    "write_film",
]
