"""``docsplit-train``: unlabelled documents in, an encoder out, by a YAML file and flags."""

import argparse
import difflib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_settings import BaseSettings, CliSettingsSource, PydanticBaseSettingsSource
from pydantic_settings import SettingsError as UnreadableFlagError
from rich.console import Console

from docsplit.corpora.fields import DataError
from export.errors import explained
from training.errors import HeadError, SettingsError, TrainingError
from training.settings import Settings

DESCRIPTION = """\
Train a document encoder from unlabelled documents.

Give each setting in the YAML file of --config or as a flag. A flag overrides the file. A run needs
data.path, backbone.path and run.output:

  docsplit-train --data.path docs.jsonl --run.output runs/first \\
    --backbone.path sentence-transformers/all-MiniLM-L6-v2

To continue an interrupted run, repeat the same command. On several devices:

  torchrun --nproc-per-node 4 -m training --config run.yaml

Separate commands train heads on the vectors of a bundle, from labels or links:

  docsplit-train head --help
  docsplit-train citation --help

Two commands make an encoder from others: the mean of their weights, and a linear map that is fitted
in minutes without labels:

  docsplit-train average --help
  docsplit-train whiten --help

The result is run.output/model, a sentence-transformers folder that also holds training.json.
run.png shows the course of the run. docs/reference/training.md explains objectives and settings.
"""

# pydantic's words name classes of Python
_PLAIN = {"path_type": "Input should be a path", "tuple_type": "Input should be a list"}


class _Parser(argparse.ArgumentParser):
    """Names a wrong flag without the usage, which lists some eighty settings before the reason."""

    def error(self, message: str) -> NoReturn:
        """End with the message and the setting that was perhaps meant."""
        flags = [f"--{name}" for name in setting_names()]
        wrong = [part.partition("=")[0] for part in message.split() if part.startswith("--")]
        close = [found for flag in wrong for found in difflib.get_close_matches(flag, flags, n=1)]
        hint = f"did you mean {' and '.join(close)}?" if close else "--help lists all settings"
        self.exit(2, f"{self.prog}: {message}; {hint}\n")


def parse(arguments: Sequence[str]) -> Settings:
    """Read the settings of a run from its command line.

    Raises:
        SettingsError: names every setting that is unknown, missing or wrong.
        SystemExit: ``--help``, or a flag that does not exist.
    """
    before = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    before.add_argument("--config", type=Path)
    known, rest = before.parse_known_args(arguments)
    file = _read(known.config) if known.config else {}
    # Pydantic would report an absent section as one error, not one error for each setting.
    empty: dict[str, Any] = {name: {} for name, _ in _sections()}
    # YAML reads a section whose settings are all comments as null
    file = {name: section for name, section in file.items() if section is not None}
    given = _with_none(_merge(_merge(empty, file), _flags(rest)))
    _check_values(given)
    try:
        return Settings.model_validate(given)
    except ValidationError as error:
        raise SettingsError("\n".join(_reasons(error))) from None


def _flags(arguments: Sequence[str]) -> dict[str, Any]:
    class Flags(Settings, BaseSettings):
        model_config = {"extra": "forbid", "frozen": True}

        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return ()

    parser = _Parser(
        prog="docsplit-train",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--config", metavar="FILE", help="YAML file of settings")
    source: CliSettingsSource[Any] = CliSettingsSource(
        Flags,
        root_parser=parser,
        cli_parse_args=list(arguments),
        cli_avoid_json=True,
        cli_shortcuts={"data.text_field": "text-field", "data.id_field": "id-field"},
    )
    try:
        values: dict[str, Any] = source()
    except UnreadableFlagError as error:
        given = {flag.partition("=")[0] for flag in arguments}
        groups = [f"--{name}" for name, _ in _sections() if f"--{name}" in given]
        reasons = [f"{one}: needs the name of a setting, as in {one}.NAME" for one in groups]
        raise SettingsError("\n".join(reasons) or str(error)) from None
    return values


class _Loader(yaml.SafeLoader):
    """Refuses a key that stands twice, of which YAML would keep only the last value."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """The mapping of a node."""
        seen = set()
        for key in [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]:
            if key.value in seen:
                place = f"line {key.start_mark.line + 1}"
                raise yaml.YAMLError(f"{key.value} is there a second time in {place}")
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _read(path: Path) -> dict[str, Any]:
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), _Loader)  # noqa: S506 - a safe one
    except OSError as error:
        raise SettingsError(f"--config {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise SettingsError(f"--config {path}: not UTF-8 ({error.reason})") from None
    except yaml.YAMLError as error:
        raise SettingsError(f"--config {path}: not valid YAML ({error})") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise SettingsError(f"--config {path}: expected sections such as data: and run:")
    return content


def _merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        both = isinstance(value, dict) and isinstance(below, dict)
        merged[key] = _merge(below, value) if both and below is not None else value
    return merged


def _with_none(given: dict[str, Any]) -> dict[str, Any]:
    """The settings with None where the word ``none`` stands, as documents and help write it."""
    for section, model in _sections():
        held = given[section]
        if not isinstance(held, dict):
            continue
        for name, field in model.model_fields.items():
            optional = type(None) in get_args(field.annotation)
            if optional and isinstance(held.get(name), str) and held[name].lower() == "none":
                held[name] = None
    return given


def _check_values(given: dict[str, Any]) -> None:
    """Refuse what pydantic would read as something else: true as 1, and no path as this folder.

    Raises:
        SettingsError: names each such setting.
    """
    wrong = []
    for section, model in _sections():
        held = given[section]
        for name, field in model.model_fields.items() if isinstance(held, dict) else ():
            value = held.get(name)
            if isinstance(value, bool) and field.annotation is not bool:
                wrong.append(f"{section}.{name}: neither true nor false is a value of it")
            if field.is_required() and value == "":
                wrong.append(f"{section}.{name}: empty; name a file or folder")
    if wrong:
        raise SettingsError("\n".join(wrong))


def setting_names() -> list[str]:
    """All settings, as ``section.name``."""
    return [f"{section}.{name}" for section, model in _sections() for name in model.model_fields]


def _sections() -> Iterator[tuple[str, type[BaseModel]]]:
    for name, field in Settings.model_fields.items():
        assert isinstance(field.annotation, type)  # noqa: S101 - every section is a model
        yield name, field.annotation


def _reasons(error: ValidationError) -> Iterator[str]:
    for problem in error.errors():
        name = ".".join(map(str, problem["loc"]))
        if problem["type"] == "extra_forbidden":
            close = difflib.get_close_matches(name, setting_names(), n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            yield f"{name}: no such setting{hint}"
        elif problem["type"] == "model_type":
            yield f"{name}: expected its settings, as in {name}: {{SETTING: VALUE}}"
        elif problem["type"] == "missing":
            yield f"{name}: missing; set it in the file or with --{name}"
        else:
            message = problem["msg"].removeprefix("Value error, ")
            message = _PLAIN.get(problem["type"], message)
            given = "" if isinstance(problem["input"], dict) else f", not {problem['input']!r}"
            yield f"{name}: {message}{given}" if name else message


_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Train as the command line says; returns the exit status."""
    errors = Console(stderr=True, highlight=False)
    given = sys.argv[1:] if arguments is None else arguments
    try:
        if given and given[0] in ("head", "citation"):
            return _head(given[0], given[1:])
        if given and given[0] == "average":
            from training import derived

            return derived.average_main(given[1:])
        if given and given[0] == "whiten":
            from training import derived

            return derived.whiten_main(given[1:])
        settings = parse(given)
        from training.documents import check_documents

        check_documents(settings.data)
        # Imported only after the rest is checked: torch takes seconds to import.
        from training.trainer.loop import TrainingRun

        run = TrainingRun(settings)
        result = run.run()
        if run.processes.is_main and result.model is not None:
            Console(highlight=False).print(f"model: {result.model}", markup=False)
        run.processes.close()
    except (TrainingError, DataError, OSError) as error:
        errors.print(f"docsplit-train: {explained(error)}", markup=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED
    return 0 if result.finished else _INTERRUPTED


def _head(kind: str, arguments: Sequence[str]) -> int:
    from docsplit.bundles.manifest import BundleError
    from export.errors import ExportError
    from training import heads

    try:
        if kind == "head":
            return heads.classifier_main(arguments)
        return heads.citation_main(arguments)
    except (BundleError, ExportError) as error:
        raise HeadError(str(error)) from None


if __name__ == "__main__":
    sys.exit(main())
