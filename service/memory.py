"""Memory: the most that a request takes, by the size of its body, and what goes back to the system.

``tests/service/test_amplification.py`` sends the worst bodies to every route and compares these
figures with the memory that the process takes.
"""

import ctypes
from contextlib import suppress

# Bytes of memory for each byte of a body: the body, its text at up to 4 bytes a character, the
# strings parsed from it, their tokens.
FACTOR = 10
# Bytes of memory for each value: the parsed object, its place in a list, its validated copy.
VALUE_BYTES = 200
# Bytes of memory for each character of stored titles and metadata in an answer: read, as a string,
# and in the JSON. Metadata is ASCII.
STORED_FACTOR = 3


def needed(body_bytes: int, values: int = 0) -> int:
    """Upper bound of the memory of a request, in bytes.

    Args:
        body_bytes: size of the body.
        values: JSON values in the body; 0 while the number is unknown.
    """
    return FACTOR * body_bytes + VALUE_BYTES * min(values, body_bytes)


def trim() -> None:
    """Return memory to the system that the allocator keeps: compiling a graph leaves much of it."""
    # only glibc has it
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
