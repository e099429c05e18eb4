"""Compare losses with their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from training.losses import (
    MaskedLMHead,
    chance,
    choose_masked,
    info_nce,
    masked_lm_gradient,
    nt_xent,
    pool_windows,
    similarity_loss,
    teacher_loss,
)
from training.settings import ObjectiveSettings


def cosine(a: torch.Tensor, b: torch.Tensor) -> float:
    return float(a @ b / a.norm() / b.norm())


def test_info_nce_equals_equation_one() -> None:
    torch.manual_seed(0)
    a, b = torch.randn(5, 8), torch.randn(5, 8)
    tau = 0.3

    def one_way(x: torch.Tensor, y: torch.Tensor) -> float:
        total = 0.0
        for i in range(5):
            scores = [math.exp(cosine(x[i], y[j]) / tau) for j in range(5)]
            total -= math.log(scores[i] / sum(scores))
        return total / 5

    assert float(info_nce(a, b, tau)) == pytest.approx(one_way(a, b), rel=1e-5)
    both = (one_way(a, b) + one_way(b, a)) / 2
    assert float(info_nce(a, b, tau, symmetric=True)) == pytest.approx(both, rel=1e-5)
    assert abs(both - one_way(a, b)) > 1e-3


def test_nt_xent_equals_the_definition_of_simclr() -> None:
    torch.manual_seed(0)
    a, b = torch.randn(4, 8), torch.randn(4, 8)
    views, tau, total = torch.cat([a, b]), 0.2, 0.0
    for i in range(8):
        scores = {j: math.exp(cosine(views[i], views[j]) / tau) for j in range(8) if j != i}
        total -= math.log(scores[(i + 4) % 8] / sum(scores.values()))
    assert float(nt_xent(a, b, tau)) == pytest.approx(total / 8, rel=1e-5)


def test_documents_that_are_left_out_are_no_negatives() -> None:
    torch.manual_seed(0)
    a, b = torch.randn(5, 8), torch.randn(5, 8)
    pair = torch.zeros(5, 5, dtype=torch.bool)
    pair[1, 4] = pair[4, 1] = True
    scores = torch.tensor([[cosine(x, y) / 0.3 for y in b] for x in a]).exp()
    kept = torch.where(pair, 0, scores)
    both = [-(s.diag() / s.sum(1)).log().mean().item() for s in (scores, kept)]
    assert info_nce(a, b, 0.3, left_out=pair).item() == pytest.approx(both[1], rel=1e-5)
    assert info_nce(a, b, 0.3).item() == pytest.approx(both[0], rel=1e-5)
    assert both[1] < both[0] - 1e-3
    # no view of a document that is left out counts
    views = torch.cat([a, b])
    total = 0.0
    for i in range(10):
        others = [j for j in range(10) if j != i and not pair[i % 5, j % 5]]
        exponentials = {j: math.exp(cosine(views[i], views[j]) / 0.3) for j in others}
        total -= math.log(exponentials[(i + 5) % 10] / sum(exponentials.values()))
    assert nt_xent(a, b, 0.3, left_out=pair).item() == pytest.approx(total / 10, rel=1e-5)


@pytest.mark.parametrize("symmetric", [False, True])
def test_chance_is_the_loss_of_equal_vectors(symmetric: bool) -> None:
    same = torch.ones(6, 3)
    plain = ObjectiveSettings(view="docsplit", symmetric=symmetric)
    loss = float(info_nce(same, same, 0.05, symmetric=symmetric))
    assert loss == pytest.approx(chance(plain, 6))
    # of each document two hard negatives follow the positives
    hard = plain.model_copy(update={"view": "links", "hard_negatives": 2})
    harder = float(info_nce(same, torch.ones(18, 3), 0.05, symmetric=symmetric))
    assert harder == pytest.approx(chance(hard, 6))
    assert harder > loss + 0.5


def test_chance_of_the_other_objectives() -> None:
    same = torch.ones(6, 3)
    slices = ObjectiveSettings(view="slice")
    assert float(nt_xent(same, same, 0.05)) == pytest.approx(chance(slices, 6))
    assert chance(ObjectiveSettings(view="mlm"), 6) is None


def test_windows_are_pooled_by_their_tokens() -> None:
    windows = torch.tensor([[3.0, 0.0], [0.0, 5.0], [0.0, 2.0]])
    pooled = pool_windows(windows, torch.tensor([0, 0, 1]), torch.tensor([30.0, 10.0, 7.0]), 2)
    torch.testing.assert_close(pooled, torch.tensor([[0.75, 0.25], [0.0, 1.0]]))


def test_both_views_approach_the_teachers_vector_of_the_first() -> None:
    torch.manual_seed(0)
    a, b, target = torch.randn(3, 4, 8)
    apart = [1 - cosine(view[i], target[i]) for view in (a, b) for i in range(4)]
    assert float(teacher_loss(a, b, target)) == pytest.approx(np.mean(apart), rel=1e-5)
    assert float(teacher_loss(target, 5 * target, target)) == pytest.approx(0, abs=1e-6)


def test_both_views_approach_the_teachers_similarities_of_the_first() -> None:
    torch.manual_seed(0)
    a, b, target, tau = *torch.randn(2, 4, 8), torch.randn(4, 12), 0.3

    def to_others(x: torch.Tensor, y: torch.Tensor, i: int) -> list[float]:
        scores = [math.exp(cosine(x[i], y[j]) / tau) for j in range(4) if j != i]
        return [score / sum(scores) for score in scores]

    total = 0.0
    for view in (a, b):
        for i in range(4):
            wanted, found = to_others(target, target, i), to_others(view, a, i)
            total += sum(p * math.log(p / q) for p, q in zip(wanted, found, strict=True))
    assert float(similarity_loss(a, b, target, tau)) == pytest.approx(total / 8, rel=1e-4)
    # A rotation keeps all similarities; other vectors do not have them.
    turn = torch.linalg.qr(torch.randn(12, 12))[0]
    turned = 3 * target @ turn
    assert float(similarity_loss(turned, turned, target, tau)) == pytest.approx(0, abs=1e-5)
    assert float(similarity_loss(turned, turned.flip(0), target, tau)) > 0.01


def test_masking_has_the_shares_of_bert() -> None:
    ids = np.full(200_000, 7)
    out, chosen = choose_masked(
        ids, np.random.default_rng(0), rate=0.15, mask_id=4, vocabulary=1_000
    )
    assert abs(len(chosen) / len(ids) - 0.15) < 0.005
    assert abs((out[chosen] == 4).mean() - 0.8) < 0.01
    assert abs((out[chosen] == 7).mean() - 0.1) < 0.01
    assert (np.delete(out, chosen) == 7).all()


def head_and_states() -> tuple[MaskedLMHead, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    head = MaskedLMHead(nn.Embedding(50, 16))
    nn.init.normal_(head.dense.weight)
    return head, torch.randn(4_500, 16), torch.randint(50, (4_500,))


def test_blockwise_gradient_equals_the_whole_one() -> None:
    head, states, labels = head_and_states()
    leaf = states.clone().requires_grad_()
    whole = nn.functional.cross_entropy(head(leaf), labels, reduction="sum")
    (whole * 0.01).backward()
    expected = {n: p.grad.clone() for n, p in head.named_parameters() if p.grad is not None}
    table = head._tied[0].weight
    assert table.grad is not None
    expected_table = table.grad.clone()
    head.zero_grad()
    table.grad.zero_()
    total, gradient = masked_lm_gradient(head, states, labels, 0.01)
    assert leaf.grad is not None
    torch.testing.assert_close(total, whole.detach())
    assert apart(gradient, leaf.grad) < 1e-5
    assert apart(table.grad, expected_table) < 1e-5
    assert set(expected) == {"dense.weight", "dense.bias", "norm.weight", "norm.bias", "bias"}
    for name, parameter in head.named_parameters():
        assert parameter.grad is not None
        assert apart(parameter.grad, expected[name]) < 1e-5
    # Control: one block gives another gradient.
    head.zero_grad()
    masked_lm_gradient(head, states[:2_048], labels[:2_048], 0.01)
    assert head.bias.grad is not None
    assert apart(head.bias.grad, expected["bias"]) > 0.1


def apart(first: torch.Tensor, second: torch.Tensor) -> float:
    """Relative distance. Sums of thousands of float32 terms depend on their order."""
    return float((first - second).norm() / second.norm())


def test_head_is_tied_and_not_counted_twice() -> None:
    embeddings = nn.Embedding(50, 16)
    head = MaskedLMHead(embeddings)
    assert sum(p.numel() for p in head.parameters()) == 16 * 16 + 16 + 2 * 16 + 50
    before = head(torch.ones(1, 16))
    with torch.no_grad():
        embeddings.weight.mul_(2)
    torch.testing.assert_close(head(torch.ones(1, 16)), 2 * before)


def test_fresh_head_predicts_the_token_of_an_embedding() -> None:
    torch.manual_seed(0)
    embeddings = nn.Embedding(50, 64)
    head = MaskedLMHead(embeddings)
    assert (head(embeddings.weight).argmax(1) == torch.arange(50)).all()


def test_bert_head_of_transformers_is_loaded() -> None:
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
    )
    bert = BertForMaskedLM(config)
    nn.init.normal_(bert.cls.predictions.bias)
    embeddings = bert.get_input_embeddings()
    assert isinstance(embeddings, nn.Embedding)
    head = MaskedLMHead(embeddings)
    states = torch.randn(3, 16)
    assert not torch.allclose(head(states), bert.cls(states))
    assert head.adopt(bert.state_dict())
    torch.testing.assert_close(head(states), bert.cls(states))
    assert not head.adopt({"encoder.weight": torch.ones(2)})
