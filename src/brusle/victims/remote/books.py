"""What was sent to a service and what became of it; see `brusle.books`."""

from brusle.books import Books as Books
from brusle.books import BooksInMemory as BooksInMemory
from brusle.books import Outcome as Outcome
from brusle.books import SpendingLimit as SpendingLimit
from brusle.books import Totals as Totals
from brusle.books import check_limit as check_limit
