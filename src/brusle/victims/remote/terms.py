"""On which terms a service is asked; see `brusle.terms`."""

from brusle.terms import Pace as Pace
from brusle.terms import Terms as Terms
from brusle.terms import parse_price as parse_price
