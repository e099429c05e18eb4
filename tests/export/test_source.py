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


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        (lambda: [LayerNorm(32)], r"unsupported module LayerNorm; a bundle is Transformer → Pool"),
        (lambda: [Dense(32, 8), Pooling(32)], "unsupported module .* → Dense → Pooling"),
        (
            lambda: [Dense(32, 8, module_input_name="token_embeddings")],
            "Dense with module_input_name token_embeddings is unsupported; after its pooling",
        ),
        (
            lambda: [Normalize(module_output_name="unit")],
            "Normalize with module_output_name unit is unsupported",
        ),
    ],
)
def test_modules_that_a_bundle_cannot_express_are_refused(
    bert_folder: Path, tmp_path: Path, extra: Callable[[], list[nn.Module]], reason: str
) -> None:
    modules = [Transformer(str(bert_folder)), Pooling(32), *extra()]
    folder = str(tmp_path / "modules")
    SentenceTransformer(modules=modules, device="cpu").save_pretrained(
        folder, create_model_card=False
    )
    with pytest.raises(ExportError, match=reason):
        open_source(folder)


def test_modules_after_the_pooling_are_read_in_order(bert_folder: Path, tmp_path: Path) -> None:
    modules = [Transformer(str(bert_folder)), Pooling(32), Normalize(), Dense(32, 8)]
    folder = str(tmp_path / "dense")
    SentenceTransformer(modules=modules, device="cpu").save_pretrained(
        folder, create_model_card=False
    )
    source = open_source(folder)
    assert describe(source.after) == "Normalize, Dense 32→8 Tanh"
    assert not source.normalises


def test_an_activation_with_code_in_the_checkpoint_is_refused(
    bert_folder: Path, tmp_path: Path
) -> None:
    """sentence-transformers would replace it by Tanh and only log that."""
    modules = [Transformer(str(bert_folder)), Pooling(32), Dense(32, 8)]
    folder = tmp_path / "activation"
    SentenceTransformer(modules=modules, device="cpu").save_pretrained(
        str(folder), create_model_card=False
    )
    settings = folder / "2_Dense" / "config.json"
    named = json.loads(settings.read_text()) | {"activation_function": "activations.Swish"}
    settings.write_text(json.dumps(named))
    with pytest.raises(ExportError, match=r"activation activations\.Swish .* use .* torch\.nn"):
        open_source(str(folder))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"pooling_mode": "weightedmean"}, "pooling weightedmean is unsupported"),
        ({"pooling_mode": ("mean", "cls")}, r"pooling mean \+ cls is unsupported"),
        ({"pooling_mode": "mean", "include_prompt": False}, "include_prompt=False"),
    ],
)
def test_an_unknown_pooling_is_refused(
    bert_folder: Path, tmp_path: Path, settings: dict[str, object], reason: str
) -> None:
    modules = [Transformer(str(bert_folder)), Pooling(32, **settings)]
    folder = str(tmp_path / "pooling")
    SentenceTransformer(modules=modules, device="cpu").save_pretrained(
        folder, create_model_card=False
    )
    with pytest.raises(ExportError, match=reason):
        open_source(folder)


def test_a_generative_model_is_refused(bert_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "gpt2"
    shutil.copytree(bert_folder, folder)
    config = GPT2Config(vocab_size=600, n_positions=64, n_embd=32, n_layer=1, n_head=2)
    GPT2Model(config).save_pretrained(folder)
    with pytest.raises(ExportError, match="gpt2 model is unsupported"):
        open_source(str(folder))


def test_a_decoder_of_a_supported_family_is_refused(bert_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "decoder"
    shutil.copytree(bert_folder, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"is_decoder": True}))
    with pytest.raises(ExportError, match="bert decoder is unsupported"):
        open_source(str(folder))


def test_a_folder_without_tokenizer_is_refused(bert_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mute"
    shutil.copytree(bert_folder, folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ExportError, match="token"):
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


def test_a_tokenizer_larger_than_the_model_is_refused(bert_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "larger"
    shutil.copytree(bert_folder, folder)
    model = json.loads((folder / "tokenizer.json").read_text())
    model["model"]["vocab"]["extra-entry"] = 600
    (folder / "tokenizer.json").write_text(json.dumps(model))
    with pytest.raises(ExportError, match="the tokenizer has 601 tokens, the model 600 embeddings"):
        open_source(str(folder))


def test_a_token_beyond_the_model_is_refused(bert_folder: Path, tmp_path: Path) -> None:
    """Such as a vocabulary with a gap. A text with the token would end the service's batch."""
    folder = tmp_path / "gap"
    shutil.copytree(bert_folder, folder)
    model = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = model["model"]["vocab"]
    vocabulary[max(vocabulary, key=vocabulary.__getitem__)] = 5000
    (folder / "tokenizer.json").write_text(json.dumps(model))
    with pytest.raises(ExportError, match="has the id 5000, the model 600 embeddings"):
        open_source(str(folder))


@pytest.mark.parametrize("name", ["./absent", "/absent/folder", "a/b/c"])
def test_a_missing_path_is_not_looked_up_on_the_hub(name: str) -> None:
    with pytest.raises(ExportError, match="no such folder"):
        open_source(name)


def test_a_folder_without_weights_is_refused(bert_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    shutil.copytree(bert_folder, folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ExportError, match="cannot be opened"):
        open_source(str(folder))
