"""Limits the memory of a training and of an answer, by their sizes before they begin.

Measured in docs/reference/api/classifiers.md, "What a training may take".
"""

# width of the network's hidden layer
HIDDEN = 128
# limits of the documents and labels of one training
MOST_EXAMPLES = 100_000
MOST_LABELS = 4096
# limit of the unlabelled documents; more add time and hardly any accuracy
MOST_UNLABELLED = 500
# limit of a training's peak memory, without its texts
MOST_BYTES = 500_000_000
# limit of the scores in one answer
MOST_SCORES = 200_000

# L-BFGS keeps 25 numbers of 8 bytes a parameter, plus points and gradients
_PARAMETER_BYTES = 32 * 8
# the vectors; those of all folds but one; and these with unlabelled documents
_VECTORS = 3 * 4
# for each example and label: a held-out logit; with several labels also the truth and the guess
_PAIR_BYTES = {False: 5, True: 8}
# examples while they pass through the network
_PARTS_BYTES = 64_000_000


def training_bytes(examples: int, labels: int, dimensions: int, multi_label: bool) -> int:
    """Peak memory of a training in bytes.

    Args:
        examples: labelled and unlabelled documents.
        labels: the network's outputs.
        dimensions: of the documents' vectors.
        multi_label: whether an example may have several.
    """
    parameters = (dimensions + 1) * HIDDEN + (HIDDEN + 1) * labels
    held = examples * (dimensions * _VECTORS + labels * _PAIR_BYTES[multi_label])
    return parameters * _PARAMETER_BYTES + held + _PARTS_BYTES


def check_training(examples: int, labels: int, dimensions: int, multi_label: bool) -> None:
    """Raise ValueError, with a remedy, if a training would take more than ``MOST_BYTES``."""
    size = training_bytes(examples, labels, dimensions, multi_label)
    if size > MOST_BYTES:
        raise ValueError(
            f"a training on {examples} examples x {labels} labels (vectors of {dimensions} "
            f"dimensions) takes {size // 1_000_000} MB, the limit is {MOST_BYTES // 1_000_000} MB: "
            "give fewer examples, or fewer labels"
        )


def check_answer(inputs: int, outputs: int, top_k: int | None) -> None:
    """Raise ValueError, with a remedy, if an answer would have more than ``MOST_SCORES``."""
    shown = outputs if top_k is None else min(top_k, outputs)
    if inputs * shown > MOST_SCORES:
        raise ValueError(
            f"top_k: {inputs} inputs x {shown} labels are {inputs * shown} scores, the limit is "
            f"{MOST_SCORES}: set top_k to {max(1, MOST_SCORES // inputs)} or less, or send fewer "
            "inputs"
        )
