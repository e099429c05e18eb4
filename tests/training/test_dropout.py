"""Dropout on a CPU: its distribution, its gradients, and models that use it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from training import dropout as quick
from training.encoder import Encoder, open_start
from training.settings import BackboneSettings

HEADS = (3, 2, 10, 4)


class Layer(nn.Module):
    is_causal = False


def drawn() -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value."""
    torch.manual_seed(1)
    query, key, value = (torch.randn(HEADS, requires_grad=True) for _ in range(3))
    return query, key, value


def padding() -> Tensor:
    """The second text has 7 tokens of 10."""
    mask = torch.ones(HEADS[0], 1, HEADS[2], HEADS[2], dtype=torch.bool)
    mask[1, :, :, 7:] = False
    return mask


def by_steps(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, seed: int) -> Tensor:
    """Attention from torch's own operations, and ``dropout``."""
    scores = query @ key.transpose(2, 3) * HEADS[3] ** -0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    torch.manual_seed(seed)
    return (quick.dropout(scores.softmax(-1), 0.3) @ value).transpose(1, 2)


def with_gradients(states: Tensor, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    weights = torch.linspace(-1, 1, states.numel()).view(states.shape)
    return (states, *torch.autograd.grad((states * weights).sum(), given))


@pytest.mark.parametrize("share", [0.1, 0.5, 2**-16])
@pytest.mark.parametrize(("kind", "error"), [(torch.float32, 2**-15), (torch.bfloat16, 2**-8)])
def test_a_share_of_the_elements_is_left_out_and_the_others_are_scaled(
    share: float, kind: torch.dtype, error: float
) -> None:
    torch.manual_seed(0)
    count = 1_000_001
    found = quick.dropout(torch.ones(count, dtype=kind), share)
    left_out = int((found == 0).sum())
    assert abs(left_out - share * count) < 5 * (share * count) ** 0.5
    assert sorted(set(found.tolist())) == [0, pytest.approx(1 / (1 - share), rel=error)]


def test_neighbours_are_left_out_independently() -> None:
    # four neighbours come from one random number of 64 bits
    torch.manual_seed(0)
    left_out = (quick.dropout(torch.ones(400_000), 0.5) == 0).view(-1, 4)
    numbers = left_out.long() @ torch.tensor([8, 4, 2, 1])
    counts = torch.bincount(numbers, minlength=16)
    assert (counts - 6250).abs().max() < 5 * 6250**0.5


def test_a_seed_gives_the_same_elements() -> None:
    def left_out(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return quick.dropout(torch.ones(1000), 0.5)

    assert torch.equal(left_out(1), left_out(1))
    assert not torch.equal(left_out(1), left_out(2))


def test_gradients_are_those_of_the_elements_that_stay() -> None:
    values = torch.randn(5, 7, dtype=torch.float64, requires_grad=True)

    def seeded(values: Tensor) -> Tensor:
        torch.manual_seed(3)
        return quick.dropout(values, 0.4)

    assert torch.autograd.gradcheck(seeded, values)


@pytest.mark.parametrize("mask", [None, padding()])
def test_attention_equals_its_steps(mask: Tensor | None) -> None:
    given = drawn()
    torch.manual_seed(5)
    states, _ = quick.attention(Layer(), *given, mask, dropout=0.3)
    found = with_gradients(states, given)
    for one, other in zip(found, with_gradients(by_steps(*given, mask, 5), given), strict=True):
        torch.testing.assert_close(one, other)
    different = with_gradients(by_steps(*given, mask, 6), given)
    assert not any(map(torch.allclose, found, different))


def test_a_mask_of_numbers_counts_like_one_of_truth_values() -> None:
    given, mask = drawn(), padding()
    numbers = torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)
    both = []
    for one in (mask, numbers):
        torch.manual_seed(5)
        both.append(quick.attention(Layer(), *given, one, dropout=0.3)[0])
    torch.testing.assert_close(*both)


@pytest.mark.parametrize("changed", ["no dropout", "causal", "one head of keys"])
def test_other_attention_is_that_of_torch(changed: str) -> None:
    query, key, value = drawn()
    share, layer = 0.3, Layer()
    if changed == "no dropout":
        share = 0.0
    if changed == "causal":
        layer.is_causal = True
    if changed == "one head of keys":
        key, value = key[:, :1], value[:, :1]
        layer.num_key_value_groups = 2  # type: ignore[assignment]
    both = []
    for function in (quick.attention, sdpa_attention_forward):
        torch.manual_seed(5)
        both.append(function(layer, query, key, value, None, dropout=share)[0])
    assert torch.equal(*both)


IDS = torch.arange(5, 17).view(2, 6)
MASK = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]])


@pytest.fixture
def model(tiny_model: Path) -> Encoder:
    settings = BackboneSettings(path=str(tiny_model), max_tokens=16, attention_dropout=0.5)
    return open_start(settings).encoder


def states(model: Encoder, *, train: bool, seed: int = 0) -> Tensor:
    torch.manual_seed(seed)
    found: Tensor = model.train(train)(IDS, MASK)[0]
    return found


def test_a_model_uses_it_in_training_only(model: Encoder, tiny_model: Path) -> None:
    assert torch.equal(states(model, train=True), states(model, train=True))
    assert not torch.allclose(states(model, train=True), states(model, train=True, seed=1))
    plain = AutoModel.from_pretrained(tiny_model).eval()
    assert torch.equal(states(model, train=False), plain(IDS, MASK)[0])


def test_a_model_stays_in_its_mode(tiny_model: Path) -> None:
    opened = open_start(BackboneSettings(path=str(tiny_model), max_tokens=16)).encoder.backbone
    assert not opened.training
    assert not any(part.training for part in opened.modules())


def test_a_model_leaves_out_weights_of_its_attention(
    model: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    forward = quick._Attention.apply

    def counted(*given: Any) -> Any:
        calls.append(given[0].dtype)
        return forward(*given)

    monkeypatch.setattr(quick._Attention, "apply", counted)
    states(model, train=False)
    assert calls == []
    exact = states(model, train=True)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = states(model, train=True)
    assert set(calls) == {torch.float32, torch.bfloat16}
    torch.testing.assert_close(rounded.float(), exact, rtol=0.05, atol=0.05)


def test_a_saved_model_opens_without_it(model: Encoder, tmp_path: Path) -> None:
    assert model.backbone.config._attn_implementation == quick.ATTENTION
    model.backbone.save_pretrained(tmp_path)
    assert AutoModel.from_pretrained(tmp_path).config._attn_implementation == "sdpa"


def test_a_model_without_dropout_of_attention_keeps_that_of_torch(tiny_model: Path) -> None:
    start = open_start(BackboneSettings(path=str(tiny_model), max_tokens=16))
    assert start.encoder.backbone.config._attn_implementation == "sdpa"
    assert any(isinstance(part, quick.Dropout) for part in start.encoder.modules())
