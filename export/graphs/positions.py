"""Find the nodes that compute positions, such as buckets of relative positions.

MPNet, T5 and DeBERTa put the distance of two tokens into a bucket by its logarithm (Raffel et al.
2020, arXiv:1910.10683, section 2.1). A logarithm rounded to fp16 falls into another bucket, and the
attention reads the wrong bias.
"""

import onnx

_WHOLE = (
    onnx.TensorProto.INT8,
    onnx.TensorProto.INT16,
    onnx.TensorProto.INT32,
    onnx.TensorProto.INT64,
    onnx.TensorProto.UINT8,
    onnx.TensorProto.UINT16,
    onnx.TensorProto.UINT32,
    onnx.TensorProto.UINT64,
)
_REAL = (onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT)
_SIZES = ("Shape", "Size")
_PRODUCTS = ("Attention", "Conv", "Gemm", "MatMul", "MultiHeadAttention")


def position_nodes(graph: onnx.GraphProto) -> list[str]:
    """Names of the nodes that compute whole numbers from real ones, without a product of matrices.

    Those without a name get one.
    """
    makers = {name: place for place, node in enumerate(graph.node) for name in node.output}
    found: set[int] = set()
    for place, node in enumerate(graph.node):
        if _casts(node, _WHOLE):
            sources = _sources(graph, makers, place)
            made = [graph.node[source] for source in sources]
            if any(_casts(one, _REAL) for one in made) and not any(
                one.op_type in _PRODUCTS for one in made
            ):
                found |= sources
    for place in found:
        graph.node[place].name = graph.node[place].name or f"{graph.node[place].op_type}_at_{place}"
    return [graph.node[place].name for place in sorted(found)]


def _casts(node: onnx.NodeProto, kinds: tuple[int, ...]) -> bool:
    return node.op_type == "Cast" and any(a.name == "to" and a.i in kinds for a in node.attribute)


def _sources(graph: onnx.GraphProto, makers: dict[str, int], place: int) -> set[int]:
    """The places of a node and of all nodes that its value depends on, as far as sizes."""
    found, left = set(), [place]
    while left:
        place = left.pop()
        if place not in found:
            found.add(place)
            if graph.node[place].op_type not in _SIZES:
                left += [makers[name] for name in graph.node[place].input if name in makers]
    return found
