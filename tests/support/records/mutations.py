"""Changes of a message's bytes, as damage and malice make them."""

import random

STRANGE_NUMBERS = [
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x7f\xff",
    b"\xff\xff",
    b"\x00",
    b"\xfe\xff\xff\xff\x07",
]


def mutated(data: bytes, dice: random.Random) -> bytes:
    """The bytes with one to three changes."""
    changed = bytearray(data)
    for _ in range(dice.randint(1, 3)):
        position = dice.randint(0, len(changed))
        match dice.randrange(5):
            case 0:
                changed[position : position + 1] = dice.randbytes(1)
            case 1:
                strange = dice.choice(STRANGE_NUMBERS)
                changed[position : position + len(strange)] = strange
            case 2:
                del changed[position:]
            case 3:
                del changed[position : position + dice.randint(1, 8)]
            case _:
                changed[position:position] = dice.randbytes(dice.randint(1, 8))
    return bytes(changed)
