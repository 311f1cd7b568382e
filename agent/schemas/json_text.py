"""Reads and writes the JSON of schemas.

Rule: a value that `read_json` returns is not nested too deeply for recursive functions, and can be written again.
Specification: RFC 8259.
"""

import json
import math

from agent.schemas.parsed import InvalidSchema
from protocol.limits import SCHEMA_DEPTH_MAX

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
TOO_DEEP = f"it is nested more than {SCHEMA_DEPTH_MAX} levels deep"


def read_json(text: str) -> Json:
    """The value of a text. Raises `InvalidSchema`."""
    try:
        text.encode()
        value: Json = json.loads(text, parse_constant=_no_number, parse_float=_finite)
        write_json(value).encode()
    except RecursionError as error:
        raise InvalidSchema(TOO_DEEP) from error
    except UnicodeEncodeError as error:
        raise InvalidSchema("it holds half of a surrogate pair, which is not a character") from error
    except ValueError as error:
        raise InvalidSchema(f"it is not JSON: {error}") from error
    _check_depth(value)
    return value


def write_json(value: Json) -> str:
    """The shortest text of a value, with its keys in their original order."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def write_sorted_json(value: Json) -> str:
    """The shortest text of a value, with its keys sorted."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def same_json(one: Json, other: Json) -> bool:
    """Whether two JSON values are equal. Unlike in Python, 1 and true differ; 1 and 1.0 are equal."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_json, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_json(value, other[key]) for key, value in one.items())
    return one == other


def _no_number(text: str) -> Json:
    raise ValueError(f"{text} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:20]} is too large")
    return number


def _check_depth(value: Json) -> None:
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > SCHEMA_DEPTH_MAX:
            raise InvalidSchema(TOO_DEEP)
        below: list[Json] = []
        for each in level:
            if isinstance(each, list):
                below += each
            elif isinstance(each, dict):
                below += each.values()
        level = below
