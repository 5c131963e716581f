"""Checks the settings of a reward model against the annotations of its dataclass fields, with pydantic.

A field says what it allows by its type: `PositiveInt`, `Annotated[float, Field(ge=0, le=1)]`, `Literal["add", ...]`.
"""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias, get_args, get_type_hints

from pydantic import ConfigDict, Field, PositiveInt, TypeAdapter, ValidationError

from rewardlab.config.load import EXPECTED
from rewardlab.errors import ConfigError
from rewardlab.registry import unknown_name

_EXPECTED = {**EXPECTED, "too_short": "a list of at least {min_length}"}

LayerSizes: TypeAlias = Annotated[Sequence[PositiveInt], Field(min_length=1)]


def check_settings(model: Any) -> None:
    """Raise a ConfigError that names the first field whose value its annotation does not allow."""
    hints = get_type_hints(type(model), include_extras=True)
    rules = ConfigDict(strict=True, allow_inf_nan=False, arbitrary_types_allowed=True)
    for key in (field.name for field in dataclasses.fields(model)):
        value = getattr(model, key)
        try:
            TypeAdapter(hints[key], config=rules).validate_python(value)
        except ValidationError as error:
            problem = error.errors()[0]
            if problem["type"] == "literal_error":
                raise ConfigError(unknown_name(key, str(value), get_args(hints[key]))) from None
            expected = _EXPECTED.get(problem["type"], problem["msg"].removeprefix("Input should be "))
            words = expected.format(**problem.get("ctx", {}))
            raise ConfigError(f"{key}: found {value!r}, expected {words}") from None
