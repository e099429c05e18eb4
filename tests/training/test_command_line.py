"""Settings from file and flags."""

from __future__ import annotations

import json
import re
import resource
from pathlib import Path

import pytest

from tests.training.conftest import make_documents
from training.__main__ import main, parse, setting_names
from training.errors import SettingsError

NEEDED = ["--data.path", "d.jsonl", "--backbone.path", "m", "--run.output", "o"]
DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "training.md"


def test_flags_override_the_file(tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    config.write_text(
        "data: {path: a.jsonl, held_out: 0.3}\n"
        "objective: {view: simcse, temperature: 0.1, mix: coco}\n"
        "backbone: {path: m}\nrun: {output: o}\n",
        encoding="utf-8",
    )
    settings = parse(
        ["--config", str(config), "--data.path", "b.jsonl", "--objective.view", "span+slice"]
    )
    assert settings.data.path == "b.jsonl"
    assert settings.data.held_out == 0.3
    assert settings.objective.view == "span+slice"
    assert settings.objective.mix == ("coco",)
    assert settings.objective.temperature == 0.1
    assert settings.optimisation.batch_size == 36


def test_flags_without_a_file() -> None:
    switches = ["--run.resume", "false", "--objective.symmetric", "true"]
    switches += ["--objective.mix", "coco", "--objective.mix", "laser-window"]
    settings = parse([*NEEDED, *switches, "--text-field", "body", "--id-field", "key"])
    assert settings.objective.mix == ("coco", "laser-window")
    assert (settings.data.text_field, settings.data.id_field) == ("body", "key")
    assert not settings.run.resume
    assert settings.objective.symmetric


def test_the_word_none_is_a_value_of_settings_that_have_it(tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    config.write_text(
        "data: {limit: 5, language: none}\nbackbone: {attention_dropout: none}\n", encoding="utf-8"
    )
    settings = parse(["--config", str(config), *NEEDED, "--data.limit", "none"])
    assert settings.backbone.attention_dropout is None
    assert settings.data.limit is None
    # a text that is no setting's missing value stays a text
    assert settings.data.language == "none"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("data: {pth: x}", r"data\.pth: no such setting; did you mean data\.path\?"),
        ("dta: {}", r"dta: no such setting"),
        ("run: {seed: -1}", r"run\.seed: .*greater than or equal to 0, not -1"),
        ("optimisation: {epochs: .inf}", r"optimisation\.epochs: .*finite number, not inf"),
        ("objective: {temperature: .nan}", r"objective\.temperature: .*finite number, not nan"),
        ("optimisation: {batch_size: many}", r"optimisation\.batch_size: .*integer.*, not 'many'"),
        ("objective: {view: halves}", r"objective\.view: .*'docsplit'.*, not 'halves'"),
        ("objective: {view: span, symmetric: true}", "symmetric has no meaning for nt_xent"),
        ("backbone: {extend_to: 64, max_tokens: 128}", r"extend_to \(64\) is shorter"),
        ("backbone: {attention_window: 64}", "attention_window needs backbone.extend_to"),
        ("data: {mask_pattern: '(PEP'}", r"data\.mask_pattern: .*not a valid regular expression"),
        ("optimisation: {cluster_size: true}", r"optimisation\.cluster_size: neither true nor"),
        ("data: {cache: 5}", r"^data\.cache: Input should be a path, not 5$"),
        ("objective: {mix: 5}", r"^objective\.mix: Input should be a list, not 5$"),
        ("run: {seed: 1}\nrun: {workers: 2}", r"run is there a second time in line 2"),
        ("run: {seed: 1,\n seed: 2}", r"seed is there a second time in line 2"),
        ("- a", "expected sections"),
        ("data: {path: [", "not valid YAML"),
    ],
)
def test_bad_settings_are_refused_by_name(tmp_path: Path, content: str, message: str) -> None:
    config = tmp_path / "run.yaml"
    config.write_text(content, encoding="utf-8")
    with pytest.raises(SettingsError, match=message):
        parse(["--config", str(config), *NEEDED])


def test_missing_settings_are_all_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--data.split", "train"]) == 1
    error = capsys.readouterr().err
    for name in ("data.path", "backbone.path", "run.output"):
        assert f"{name}: missing; set it in the file or with --{name}" in error


def test_unknown_flag_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for given, said in (
        (["--run.sed", "1"], "unrecognized arguments: --run.sed 1; did you mean --run.seed?"),
        (["run.yaml"], "unrecognized arguments: run.yaml; --help lists all settings"),
    ):
        with pytest.raises(SystemExit) as ended:
            parse([*NEEDED, *given])
        assert ended.value.code == 2
        assert capsys.readouterr().err == f"docsplit-train: {said}\n"


def test_a_flag_of_a_section_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """``--data`` is a flag of docsplit-evaluate; before, this was a traceback."""
    for given in (["--data", "docs.jsonl"], ["--data=docs.jsonl"]):
        assert main([*NEEDED, *given]) == 1
        said = "docsplit-train: --data: needs the name of a setting, as in --data.NAME\n"
        assert capsys.readouterr().err == said


def test_an_empty_path_is_not_this_folder(capsys: pytest.CaptureFixture[str]) -> None:
    """A script's variable without a value gives one."""
    for flag, name in (("--data.path", "data.path"), ("--run.output", "run.output")):
        assert main([*NEEDED, flag, ""]) == 1
        assert f"{name}: empty; name a file or folder" in capsys.readouterr().err


def test_a_section_of_comments_is_empty(tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    config.write_text("optimisation:\n  # max_steps: 4\n", encoding="utf-8")
    assert parse(["--config", str(config), *NEEDED]) == parse(NEEDED)
    config.write_text("data: docs.jsonl\n", encoding="utf-8")
    reason = r"^data: expected its settings, as in data: \{SETTING: VALUE\}$"
    with pytest.raises(SettingsError, match=reason):
        parse(["--config", str(config), *NEEDED[2:]])


def test_a_file_of_settings_is_utf_8(tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    config.write_bytes("data: {path: büro}".encode("latin-1"))
    with pytest.raises(SettingsError, match=r"--config .*run\.yaml: not UTF-8"):
        parse(["--config", str(config)])


def test_help_lists_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert "torchrun" in shown
    assert [name for name in setting_names() if f"--{name} " not in shown] == []


def test_every_setting_is_documented() -> None:
    text = DOCUMENT.read_text(encoding="utf-8").partition("\n## Settings\n")[2]
    rows = re.findall(r"^\| `([a-z_]+\.[a-z_]+)` \|", text, flags=re.MULTILINE)
    assert sorted(rows) == sorted(setting_names())


def test_error_of_the_data_ends_the_program_with_a_message(
    tmp_path: Path, tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "d.jsonl"
    bad.write_text('{"text": "Bal. Dem."}\n{"text"\n', encoding="utf-8")
    arguments = [
        "--data.path", str(bad), "--data.cache", str(tmp_path / "cache"),
        "--backbone.path", str(tiny_model), "--backbone.max_tokens", "32",
        "--run.output", str(tmp_path / "run"),
    ]  # fmt: skip
    assert main(arguments) == 1
    assert "d.jsonl:2: no valid JSON" in capsys.readouterr().err


def test_columns_are_looked_for_before_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.csv").write_text("id,text\n1,a\n")
    (tmp_path / "b.csv").write_text('id,body\n1,"a\nb"\n')
    arguments = ["--data.path", str(tmp_path), "--backbone.path", str(tmp_path / "absent")]
    arguments += ["--run.output", str(tmp_path / "run")]
    assert main(arguments) == 1
    said = capsys.readouterr().err
    assert "b.csv:1: no column text; there are id, body. Rename yours, or name it with" in said
    # the remedy is a flag of this command
    assert "--text-field" in said
    (tmp_path / "a.csv").unlink()
    assert main([*arguments, "--text-field", "body"]) == 1
    assert "absent" in capsys.readouterr().err


def test_a_full_disk_ends_the_program_with_a_message_and_the_command_goes_on(
    tmp_path: Path, tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "d.jsonl"
    data.write_text("\n".join(map(json.dumps, make_documents(200))), encoding="utf-8")
    arguments = [
        "--data.path", str(data), "--data.cache", str(tmp_path / "cache"),
        "--backbone.path", str(tiny_model), "--backbone.max_tokens", "32",
        "--run.output", str(tmp_path / "run"), "--run.tensorboard", "false",
        "--optimisation.max_steps", "1",
    ]  # fmt: skip
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        assert main(arguments) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    said = " ".join(capsys.readouterr().err.split())
    place = re.escape(str(tmp_path / "cache"))
    reason = rf"\[Errno 27\] File too large: '{place}/\w+'; free space or correct the path, then"
    assert re.search(f"docsplit-train: {reason} repeat", said)
    assert main(arguments) == 0
