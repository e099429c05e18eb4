"""Tiny random cross-encoders."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
import transformers
from sentence_transformers import CrossEncoder

from tests.export.checkpoints import tiny_encoder

# classes of transformers by family
CLASSIFIERS = {
    "albert": "Albert",
    "bert": "Bert",
    "camembert": "Camembert",
    "deberta-v2": "DebertaV2",
    "distilbert": "DistilBert",
    "electra": "Electra",
    "modernbert": "ModernBert",
    "mpnet": "MPNet",
    "roberta": "Roberta",
    "xlm-roberta": "XLMRoberta",
}
_SPREAD = 20


def save_cross_encoder(
    family: str, tokenizer: Path, folder: Path, *, labels: int = 1, **settings: Any
) -> Path:
    """A folder of sentence-transformers with the tokenizer of the folder ``tokenizer``.

    The weights of the last layer are large, so that an untrained model gives different scores, and
    its bias puts them around .5.
    """
    vocabulary = transformers.AutoTokenizer.from_pretrained(tokenizer)
    config: Any = tiny_encoder(family, len(vocabulary)).config
    config.num_labels = labels
    torch.manual_seed(0)
    kind = getattr(transformers, f"{CLASSIFIERS[family]}ForSequenceClassification")
    model = kind(config)
    last = getattr(model.classifier, "out_proj", model.classifier)
    ids = torch.randint(5, len(vocabulary), (16, 32))
    with torch.no_grad():
        last.weight *= _SPREAD
        last.bias -= model.eval()(input_ids=ids, attention_mask=torch.ones_like(ids)).logits.mean(0)
    shutil.copytree(tokenizer, folder)
    for file in folder.glob("*.safetensors"):
        file.unlink()
    model.save_pretrained(folder)
    saved = CrossEncoder(str(folder), device="cpu", **settings)
    saved.save_pretrained(str(folder), create_model_card=False)
    return folder


def with_segments(tokenizer: Path, folder: Path) -> Path:
    """A copy of a BERT folder, whose tokenizer gives the second text of a pair another type."""
    from tokenizers import Tokenizer, processors

    shutil.copytree(tokenizer, folder)
    fast = Tokenizer.from_file(str(folder / "tokenizer.json"))
    fast.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=fast,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=64,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    ).save_pretrained(folder)
    return folder
