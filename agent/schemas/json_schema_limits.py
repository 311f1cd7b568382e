"""The compatibility rules of `agent.schemas.json_schema_reading` for texts, numbers and counts.

Rule: a limit may become wider, or be removed. Source: as for `agent.schemas.json_schema_reading`.
"""

from agent.schemas.json_schema_shapes import Shape
from agent.schemas.json_text import Json


def fault(kind: str, path: str) -> str:
    """The fault by its name in Confluent's registry, with its place."""
    return f"{kind} at {path}"


def schema_dict(shape: Shape) -> dict[str, Json]:
    assert isinstance(shape.node.schema, dict)
    return shape.node.schema


def limit_faults(before: dict[str, Json], after: dict[str, Json], word: str, path: str, *, is_most: bool) -> list[str]:
    """The fault of a limit: a maximum may grow, a minimum may shrink, and both may be removed."""
    name = "".join(f"_{letter}" if letter.isupper() else letter for letter in word).upper()
    return _limit_faults(_number(before, word), _number(after, word), name, f"{path}/{word}", is_most=is_most)


def _limit_faults(was: float | None, now: float | None, name: str, path: str, *, is_most: bool) -> list[str]:
    if now is None or was == now or (not is_most and now == 0 and name.startswith("MIN_")):
        return []
    if was is None:
        return [fault(f"{name}_ADDED", path)]
    if is_most:
        return [fault(f"{name}_DECREASED", path)] if now < was else []
    return [fault(f"{name}_INCREASED", path)] if now > was else []


def _number(schema: dict[str, Json], word: str) -> float | None:
    value = schema.get(word)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def string_faults(before: Shape, after: Shape, path: str) -> list[str]:
    was, now = schema_dict(before), schema_dict(after)
    faults = limit_faults(was, now, "maxLength", path, is_most=True)
    faults += limit_faults(was, now, "minLength", path, is_most=False)
    if "pattern" in now and was.get("pattern") != now["pattern"]:
        faults.append(fault("PATTERN_CHANGED" if "pattern" in was else "PATTERN_ADDED", f"{path}/pattern"))
    return faults


def number_faults(before: Shape, after: Shape, path: str) -> list[str]:
    was, now = schema_dict(before), schema_dict(after)
    faults = [fault("TYPE_NARROWED", path)] if after.is_integer and not before.is_integer else []
    for word, exclusive, is_most in (("maximum", "exclusiveMaximum", True), ("minimum", "exclusiveMinimum", False)):
        name = "EXCLUSIVE_" + word.upper()
        (limit_was, open_was), (limit_now, open_now) = _bounds(was, word, exclusive), _bounds(now, word, exclusive)
        faults += _limit_faults(limit_was, limit_now, word.upper(), f"{path}/{word}", is_most=is_most)
        faults += _limit_faults(open_was, open_now, name, f"{path}/{exclusive}", is_most=is_most)
    step_was, step_now = _number(was, "multipleOf"), _number(now, "multipleOf")
    if step_now is not None and step_was != step_now:
        if step_was is None:
            faults.append(fault("MULTIPLE_OF_ADDED", f"{path}/multipleOf"))
        elif step_was % step_now != 0:
            faults.append(fault("MULTIPLE_OF_CHANGED", f"{path}/multipleOf"))
    return faults


def _bounds(schema: dict[str, Json], word: str, exclusive: str) -> tuple[float | None, float | None]:
    """The inclusive and the exclusive bound; in draft 4 a flag makes the bound exclusive."""
    if schema.get(exclusive) is True:
        return None, _number(schema, word)
    return _number(schema, word), _number(schema, exclusive)
