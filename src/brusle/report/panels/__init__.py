"""Panels of pictures, each drawn on axes that somebody else has placed.

They take plain arrays, so that a figure, a frame of a film and a page can share them. Places on an
image, a map or a perturbation are the same: column and row of a pixel, whose middle they are.
"""

from brusle.report.panels.labels import Entry, draw_labels
from brusle.report.panels.losses import draw_losses
from brusle.report.panels.maps import Scale, draw_map, draw_scale
from brusle.report.panels.pictures import (
    Picture,
    Window,
    changed_pixels,
    densest,
    draw_image,
    draw_perturbation,
    draw_window,
    draw_zoom,
    enlarged,
    levels,
    magnification,
    magnified,
    mark_pixels,
    zoomed,
)

__all__ = [
    "Entry",
    "Picture",
    "Scale",
    "Window",
    "changed_pixels",
    "densest",
    "draw_image",
    "draw_labels",
    "draw_losses",
    "draw_map",
    "draw_perturbation",
    "draw_scale",
    "draw_window",
    "draw_zoom",
    "enlarged",
    "levels",
    "magnification",
    "magnified",
    "mark_pixels",
    "zoomed",
]
