"""Where a victim looks: maps that say which part of an image its answer rests on.

    maps = brusle.looking.look(victim, images, labels)
    maps.how, maps.maps, maps.note          # "gradcam", (n, h, w), a caption
    brusle.looking.hows(victim)             # ("gradcam", "occlusion")

docs/looking.md says what each kind of map is, and what it is not.
"""

from brusle.looking.looks import Look, hows, look

__all__ = ["Look", "hows", "look"]
