"""One settings object: command line over environment over file over default."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.__main__ import main
from service.bulk.command_settings import load_settings
from service.configuration import load
from service.settings import Settings, SettingsError


def test_precedence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("port: 1\nhost: file\nstreams: 3\nmodel_aliases: [a, b]\n")
    assert load([]).port == 8080
    assert load(["--config", str(file)]).port == 1
    monkeypatch.setenv("DOCSPLIT_CONFIG", str(file))
    monkeypatch.setenv("DOCSPLIT_PORT", "2")
    monkeypatch.setenv("DOCSPLIT_HOST", "environment")
    settings = load(["--port", "3"])
    assert (settings.port, settings.host, settings.streams) == (3, "environment", 3)
    assert settings.model_aliases == ["a", "b"]


def test_lists_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCSPLIT_API_KEYS", "first-key-of-sixteen, second-key-of-sixteen")
    keys = [key.get_secret_value() for key in load([]).api_keys]
    assert keys == ["first-key-of-sixteen", "second-key-of-sixteen"]
    assert "first-key" not in repr(load([]))


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--port", "65536"], "port"),
        (["--port", "x"], "port"),
        (["--precision", "int4"], "precision"),
        (["--api-keys", "short"], "api_keys"),
        (["--index-path", "gs://bucket"], "index_path"),
        (["--index-path", "s3:/bucket/prefix"], "index_path"),
        (["--cache-secret", "one of 31 characters, too short"], "cache_secret"),
        (["--cache-sharing", "sometimes"], "cache_sharing"),
        (["--request-timeout", "0"], "request_timeout"),
        (["--request-timeout", "inf"], "request_timeout"),
        (["--drain-seconds", "inf"], "drain_seconds"),
        (["--redis-url", "redis://host:port"], "redis_url"),
        (["--redis-url", "redis://host?socket_timeout=x"], "redis_url"),
        (["--redis-url", "redis://host?no_such_option=1"], "redis_url"),
        (["--ocr", "/etc/passwd"], "ocr"),
        (["--config", "/nowhere.yaml"], "config"),
        (["--otlp-endpoint", "collector:4318"], "otlp_endpoint"),
        (["--otlp-endpoint", "http://"], "otlp_endpoint"),
        (["--otlp-endpoint", "http://collector:x"], "otlp_endpoint"),
        (["--otlp-endpoint", "http://user:word@collector"], "otlp_endpoint"),
        (["--otlp-endpoint", "http://collector?key=word"], "otlp_endpoint"),
        (["--trace-ratio", "1.1"], "trace_ratio"),
    ],
)
def test_a_bad_value_is_reported_with_its_setting(flags: list[str], named: str) -> None:
    with pytest.raises((SettingsError, SystemExit)) as refused:
        load(flags)
    if isinstance(refused.value, SettingsError):
        assert str(refused.value).startswith(named)


@pytest.mark.parametrize("content", ["prot: 1\n", "port: [\n", "just text\n"])
def test_a_bad_file_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(content)
    with pytest.raises(SettingsError):
        load(["--config", str(file)])


def test_a_bad_variable_is_reported_with_its_setting(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DOCSPLIT_QUEUE_TOKENS", "many")
    assert main([]) == 2
    assert "DOCSPLIT_QUEUE_TOKENS" in capsys.readouterr().err


def test_an_unknown_flag_is_reported_by_the_command_that_was_called(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for read, program in ((load, "docsplit-serve"), (load_settings, "docsplit-index")):
        with pytest.raises(SystemExit):
            read(["--prot", "8"])
        said = capsys.readouterr().err
        assert said.startswith(f"usage: {program} ")
        assert said.endswith(f"{program}: error: unrecognized arguments: --prot 8\n")


def test_a_missing_bundle_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--bundle", str(tmp_path)]) == 2
    assert "bundle.json" in capsys.readouterr().err


def test_help_names_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        load(["--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    for name in Settings.model_fields:
        assert f"--{name.replace('_', '-')}" in said


def test_the_secret_of_the_cache_follows_precedence_and_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    secrets = [f"a secret of the cache that is long enough, {n}" for n in range(3)]
    config = tmp_path / "settings.yaml"
    config.write_text(f'cache_secret: "{secrets[0]}"\n')

    def taken(*flags: str) -> str | None:
        found = load(["--config", str(config), *flags])
        assert "a secret" not in repr(found)
        return None if found.cache_secret is None else found.cache_secret.get_secret_value()

    assert taken() == secrets[0]
    monkeypatch.setenv("DOCSPLIT_CACHE_SECRET", secrets[1])
    assert taken() == secrets[1]
    assert taken("--cache-secret", secrets[2]) == secrets[2]
    assert main(["--cache-secret", "hush"]) == 2
    assert "hush" not in capsys.readouterr().err


def test_a_password_that_breaks_the_url_of_redis_is_not_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--redis-url", "redis://:hush/word@host"]) == 2
    said = capsys.readouterr().err
    assert "redis_url" in said
    assert "hush" not in said


@pytest.mark.parametrize(
    "url",
    [
        "redis://user:w%2Ford@host:6379/3?protocol=3",
        "rediss://[::1]?ssl_cert_reqs=none",
        "unix:///run/redis.sock?db=1",
    ],
)
def test_every_form_of_the_url_of_redis_is_taken(url: str) -> None:
    assert load(["--redis-url", url]).redis_url is not None
