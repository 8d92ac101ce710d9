"""Settings models: fields that are options of a command and lines of a TOML file.

A field's type, bounds, default and description are written once, in the model. Its JSON
schema then makes the option with its help, and the sentence that names a wrong value.
"""

import argparse
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from trainer.errors import ConfigError

__all__ = ["Settings"]

Schema = dict[str, Any]

_TYPES: Mapping[str, type] = MappingProxyType({"integer": int, "number": float, "string": str})
_METAVARS: Mapping[str, str] = MappingProxyType(
    {"integer": "N", "number": "NUMBER", "string": "TEXT"}
)


class Settings(BaseModel):
    """Values that never change, of exactly the declared types, without unknown names.

    A field's title is the metavar of its option. The description of a field whose default
    is None says in brackets what that means; other defaults are added to the help.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """The settings with these values, or a `ConfigError` of one sentence."""
        try:
            return cls(**values)
        except ValidationError as error:
            raise ConfigError(cls._explain(error, values)) from error

    @classmethod
    def add_options(
        cls, parser: "argparse._ActionsContainer", names: Collection[str] | None = None
    ) -> None:
        """Add an option for each field, or only for those named, in the order of the fields."""
        for name, schema in cls._schemas().items():
            if names is None or name in names:
                parser.add_argument(f"--{name.replace('_', '-')}", **_option(schema))

    @classmethod
    def given(cls, options: argparse.Namespace) -> dict[str, Any]:
        """The values that the command line gave, by field; not those left at their default."""
        values = vars(options)
        return {name: values[name] for name in cls.model_fields if name in values}

    @classmethod
    def _schemas(cls) -> dict[str, Schema]:
        """The JSON schema of every field, that of `X | None` as that of X."""
        properties: dict[str, Schema] = cls.model_json_schema()["properties"]
        return {
            name: {**schema, **next(iter(schema.get("anyOf", ())), {})}
            for name, schema in properties.items()
        }

    @classmethod
    def _explain(cls, error: ValidationError, values: Mapping[str, Any]) -> str:
        problems = error.errors(include_url=False)
        unknown = sorted(str(p["loc"][0]) for p in problems if p["type"] == "extra_forbidden")
        if unknown:
            known = ", ".join(sorted(cls.model_fields))
            return f"unknown settings {', '.join(unknown)}, expected {known}"
        name = str(problems[0]["loc"][0])
        return f"{name} is {values[name]!r}, expected {_expected(cls._schemas()[name])}"


def _option(schema: Schema) -> dict[str, Any]:
    """The arguments of `add_argument` for a field."""
    option: dict[str, Any] = {"default": argparse.SUPPRESS, "help": _help(schema)}
    if "enum" in schema:
        return {**option, "choices": schema["enum"]}
    if schema["type"] == "array":
        option["action"] = "append"
        kind = schema["items"]["type"]
    else:
        kind = schema["type"]
    # Without a title of its own, a field has one that pydantic made of its name.
    metavar = schema["title"] if schema["title"].isupper() else _METAVARS[kind]
    return {**option, "type": _TYPES[kind], "metavar": metavar}


def _help(schema: Schema) -> str:
    default = schema.get("default")
    shown = "" if default in (None, []) else f" [{default}]"
    return f"{schema['description']}{shown}"


def _expected(schema: Schema) -> str:
    if "enum" in schema:
        return f"one of {', '.join(schema['enum'])}"
    if "minimum" in schema and "maximum" in schema:
        return f"a whole number from {schema['minimum']} to {schema['maximum']}"
    if "minimum" in schema:
        kind = "whole number" if schema["type"] == "integer" else "number"
        return f"a {kind} of at least {schema['minimum']:g}"
    if "exclusiveMinimum" in schema:
        return f"a number above {schema['exclusiveMinimum']:g}"
    if schema["type"] == "array":
        return {"integer": "a list of whole numbers", "string": "a list of texts"}[
            schema["items"]["type"]
        ]
    return {"object": "a table of texts", "string": "the name of a file"}[schema["type"]]
