"""How checkpoints are read, and which are refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import (
    Dense,
    LayerNorm,
    Normalize,
    Pooling,
    Transformer,
)
from torch import nn
from transformers import GPT2Config, GPT2Model

from export.errors import ExportError
from export.source import describe, open_source, reference_vectors
from tests.export.conftest import save_sentence_transformer


def test_a_plain_transformers_folder_is_mean_pooled(bert_folder: Path) -> None:
    source = open_source(str(bert_folder))
    assert (source.pooling, source.normalises) == ("mean", False)
    assert source.name == "tiny-bert"
    assert source.trained_tokens == source.max_tokens == 64
    assert source.takes_token_types
    assert source.prompts == {}


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_a_sentence_transformers_folder_sets_its_pooling(
    bert_folder: Path, tmp_path: Path, pooling: str
) -> None:
    folder = save_sentence_transformer(
        bert_folder,
        tmp_path / "model",
        pooling=pooling,
        normalise=True,
        prompts={"query": "query: ", "passage": ""},
        default_prompt_name="query",
    )
    source = open_source(str(folder), source_name="tiny")
    assert (source.pooling, source.normalises, source.name) == (pooling, True, "tiny")
    assert source.prompts == {"query": "query: "}
    assert source.default_prompt == "query"


def test_the_weights_digest_depends_on_the_weights(bert_folder: Path, tmp_path: Path) -> None:
    source = open_source(str(bert_folder))
    copy = tmp_path / "copy"
    shutil.copytree(bert_folder, copy)
    other = open_source(str(copy))
    assert other.weights_digest() == source.weights_digest()
    with torch.no_grad():
        next(other.encoder.parameters())[0, 0] += 1e-3
    assert other.weights_digest() != source.weights_digest()


def test_a_length_of_its_vectors_is_one_to_which_they_may_be_cut(
    bert_folder: Path, tmp_path: Path
) -> None:
    folder = save_sentence_transformer(
        bert_folder, tmp_path / "cut", pooling="mean", normalise=True, truncate_dim=8
    )
    assert SentenceTransformer(str(folder), device="cpu").encode("a text").shape == (8,)
    source = open_source(str(folder))
    assert source.matryoshka == [8]
    whole = reference_vectors(open_source(str(bert_folder)), ["a text"])
    torch.testing.assert_close(reference_vectors(source, ["a text"]), whole)


def test_an_encoder_that_pads_and_cuts_at_the_left_is_read_as_its_graph_is(
    bert_folder: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "left"
    shutil.copytree(bert_folder, folder)
    settings = folder / "tokenizer_config.json"
    sides = {"padding_side": "left", "truncation_side": "left"}
    settings.write_text(json.dumps(json.loads(settings.read_text()) | sides))
    texts = ["a", "word " * 20, "first words " + "word " * 100 + "last words"]
    right = reference_vectors(open_source(str(bert_folder)), texts)
    torch.testing.assert_close(reference_vectors(open_source(str(folder)), texts), right)
    # the control: sentence-transformers itself
    left = SentenceTransformer(str(folder), device="cpu").encode(texts, normalize_embeddings=True)
    assert (torch.from_numpy(left) * right).sum(dim=1).min() < 0.999


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_windows_reach_to_the_end_of_the_position_table(
    family: str, bert_folder: Path, roberta_folder: Path
) -> None:
    # RoBERTa's table has 98 rows; the first two are never used.
    folder = str({"bert": bert_folder, "roberta": roberta_folder}[family])
    source = open_source(folder, max_tokens=96)
    assert (source.trained_tokens, source.max_tokens) == (64, 96)
    vector = source.model.encode("word " * 500)
    assert torch.isfinite(torch.as_tensor(vector)).all()
    for tokens in (97, 7):
        with pytest.raises(ExportError, match=rf"--max-tokens {tokens} is outside 8\.\.96"):
            open_source(folder, max_tokens=tokens)


def saved(bert: Path, folder: Path, *modules: nn.Module) -> str:
    """A folder of an encoder with these modules behind the transformer."""
    made = SentenceTransformer(modules=[Transformer(str(bert)), *modules], device="cpu")
    made.save_pretrained(str(folder), create_model_card=False)
    return str(folder)


@pytest.mark.parametrize(
    ("modules", "reason"),
    [
        (
            lambda: [Pooling(32), LayerNorm(32)],
            r"unsupported module LayerNorm; a bundle is Transformer → Pool",
        ),
        (
            lambda: [Pooling(32), Dense(32, 8), Pooling(32)],
            "unsupported module .* → Dense → Pooling",
        ),
        (
            lambda: [Pooling(32), Dense(32, 8, module_input_name="token_embeddings")],
            "Dense with module_input_name token_embeddings is unsupported; after its pooling",
        ),
        (
            lambda: [Pooling(32), Normalize(module_output_name="unit")],
            "Normalize with module_output_name unit is unsupported",
        ),
        (
            lambda: [Pooling(32, pooling_mode="weightedmean")],
            "pooling weightedmean is unsupported",
        ),
        (
            lambda: [Pooling(32, pooling_mode=("mean", "cls"))],
            r"pooling mean \+ cls is unsupported",
        ),
        (
            lambda: [Pooling(32, pooling_mode="mean", include_prompt=False)],
            "include_prompt=False",
        ),
    ],
)
def test_modules_that_a_bundle_cannot_express_are_refused(
    bert_folder: Path, tmp_path: Path, modules: Callable[[], list[nn.Module]], reason: str
) -> None:
    folder = saved(bert_folder, tmp_path / "modules", *modules())
    with pytest.raises(ExportError, match=reason):
        open_source(folder)


def test_modules_after_the_pooling_are_read_in_order(bert_folder: Path, tmp_path: Path) -> None:
    modules = [Pooling(32), Normalize(), Dense(32, 8)]
    source = open_source(saved(bert_folder, tmp_path / "dense", *modules))
    assert describe(source.after) == "Normalize, Dense 32→8 Tanh"
    assert not source.normalises


def test_an_activation_with_code_in_the_checkpoint_is_refused(
    bert_folder: Path, tmp_path: Path
) -> None:
    """sentence-transformers would replace it by Tanh and only log that."""
    folder = saved(bert_folder, tmp_path / "activation", Pooling(32), Dense(32, 8))
    rewrite(Path(folder, "2_Dense", "config.json"), activation_function="activations.Swish")
    with pytest.raises(ExportError, match=r"activation activations\.Swish .* use .* torch\.nn"):
        open_source(folder)


def rewrite(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def generate(folder: Path) -> None:
    config = GPT2Config(vocab_size=600, n_positions=64, n_embd=32, n_layer=1, n_head=2)
    GPT2Model(config).save_pretrained(folder)


def renumber(folder: Path, token: str | None, number: int) -> None:
    """Give a token of the vocabulary, by default its last one, a number."""
    file = folder / "tokenizer.json"
    model = json.loads(file.read_text())["model"]
    last = max(model["vocab"], key=model["vocab"].__getitem__)
    rewrite(file, model=model | {"vocab": model["vocab"] | {token or last: number}})


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (generate, "gpt2 model is unsupported"),
        (lambda f: rewrite(f / "config.json", is_decoder=True), "bert decoder is unsupported"),
        (lambda f: (f / "tokenizer.json").unlink(), "token"),
        (lambda f: (f / "model.safetensors").unlink(), "cannot be opened"),
        (
            lambda f: renumber(f, "extra-entry", 600),
            "the tokenizer has 601 tokens, the model 600 embeddings",
        ),
        # such as a vocabulary with a gap: a text with the token would end the service's batch
        (lambda f: renumber(f, None, 5000), "has the id 5000, the model 600 embeddings"),
    ],
)
def test_a_folder_that_makes_no_bundle_is_refused(
    bert_folder: Path, tmp_path: Path, damage: Callable[[Path], object], reason: str
) -> None:
    folder = tmp_path / "damaged"
    shutil.copytree(bert_folder, folder)
    damage(folder)
    with pytest.raises(ExportError, match=reason):
        open_source(str(folder))


@pytest.mark.parametrize(
    ("names", "said"),
    [
        # as torch's DataParallel names them
        (lambda name: f"module.{name}", r"missing, for instance embeddings\.LayerNorm\.bias"),
        (lambda name: None if ".attention." in name else name, r"encoder\.layer\.0\.attention"),
    ],
)
def test_weights_that_are_missing_or_have_other_names_are_refused(
    names: Callable[[str], str | None], said: str, bert_folder: Path, tmp_path: Path
) -> None:
    """transformers fills them with random numbers, and the graphs would be close to those."""
    folder = tmp_path / "incomplete"
    shutil.copytree(bert_folder, folder)
    file = folder / "model.safetensors"
    held = {names(name): tensor for name, tensor in load_file(file).items()}
    save_file({n: t for n, t in held.items() if n is not None}, file, {"format": "pt"})
    with pytest.raises(ExportError, match=said):
        open_source(str(folder))


def test_a_checkpoint_without_pooler_opens(bert_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    shutil.copytree(bert_folder, folder)
    file = folder / "model.safetensors"
    weights = {name: t for name, t in load_file(file).items() if "pooler" not in name}
    save_file(weights, file, {"format": "pt"})
    assert open_source(str(folder)).max_tokens == 64


@pytest.mark.parametrize("name", ["./absent", "/absent/folder", "a/b/c"])
def test_a_missing_path_is_not_looked_up_on_the_hub(name: str) -> None:
    with pytest.raises(ExportError, match="no such folder"):
        open_source(name)
