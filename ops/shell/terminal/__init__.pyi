from .output import note as note
from .output import note_after_interruption as note_after_interruption
from .output import out as out
from .output import print_error as print_error
from .output import print_json as print_json
from .output import print_table as print_table
from .times import format_time as format_time
from .times import parse_span as parse_span
