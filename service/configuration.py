"""Settings from flags, environment and a file."""

import argparse
import os
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    CliApp,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    YamlConfigSettingsSource,
)
from pydantic_settings import (
    SettingsError as SettingsSourceError,
)
from yaml import YAMLError

from service.settings import ENV_PREFIX, Settings, SettingsError
from service.unknown import remedy


def load(arguments: list[str], program: str = "docsplit-serve") -> Settings:
    """Read settings. Precedence: flags, environment, the file that ``--config`` names, defaults.

    Args:
        program: the command that has them, for its usage.

    Raises:
        SettingsError: a value is unusable, the file has an unknown name, or there is no such file.
        SystemExit: for ``--help`` or an unknown flag.
    """
    finder = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    finder.add_argument("--config", default=os.environ.get(f"{ENV_PREFIX}CONFIG") or None)
    file = finder.parse_known_args(arguments)[0].config
    if file is not None and not Path(file).is_file():
        raise SettingsError(f"config (--config, {ENV_PREFIX}CONFIG): no such file: {file}")

    class WithFile(Settings):
        __doc__ = Settings.__doc__
        # it has no field of its own, and the search for docstrings goes through all modules
        model_config = SettingsConfigDict(use_attribute_docstrings=False, cli_prog_name=program)

        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            in_file = YamlConfigSettingsSource(settings_cls, yaml_file=file)
            return init_settings, env_settings, in_file

    try:
        return CliApp.run(WithFile, cli_args=arguments)
    except ValidationError as error:
        raise SettingsError("\n".join(_fault(e) for e in error.errors())) from error
    except (SettingsSourceError, YAMLError) as error:
        raise SettingsError(f"config: {file}: {error}") from error
    except ValueError as error:
        raise SettingsError(f"config: {file}: must be a mapping of settings to values") from error


def unknown_variables() -> list[str]:
    """Environment variables that have the prefix of settings but name no setting."""
    known = {f"{ENV_PREFIX}{name.upper()}" for name in Settings.model_fields}
    return sorted(v for v in os.environ if v.startswith(ENV_PREFIX) and v.upper() not in known)


def _fault(error: ErrorDetails) -> str:
    name = str(error["loc"][0]) if error["loc"] else "settings"
    if name not in Settings.model_fields:
        return f"{name}: no such setting"
    flag = name.replace("_", "-")
    return f"{name} (--{flag}, {ENV_PREFIX}{name.upper()}): {remedy(error, {})}"
