from .letters import marks_of as marks_of
from .pending import PendingLetters as PendingLetters
from .repeats import Repeats as Repeats
from .repeats import drop_repeated as drop_repeated
from .repeats import effects_on_letters as effects_on_letters
