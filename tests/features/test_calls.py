"""Calls of a graph: the same outputs, in the same structure, as the function itself gives."""

import pytest

tf = pytest.importorskip("tensorflow")

from pipeline.features.calls import GraphCall  # noqa: E402  # after the skip


def concrete(function, *signature):
    return tf.function(function, input_signature=signature, autograph=False).get_concrete_function()


def test_plain_outputs_come_in_the_structure_of_the_function():
    def work(numbers):
        return [{"z": numbers + 1, "a": {"same": numbers}}, {}]

    function = concrete(work, tf.TensorSpec([None]))
    numbers = tf.constant([1.0, 2.0])
    first, nothing = GraphCall(function)([numbers])
    assert first["z"].numpy().tolist() == [2.0, 3.0]
    assert first["a"]["same"].numpy().tolist() == [1.0, 2.0]
    assert nothing == {}


def test_sparse_and_ragged_tensors_go_in_and_come_out_whole():
    def work(sparse, ragged):
        return {"sparse": sparse, "ragged": ragged * 2}

    function = concrete(work, tf.SparseTensorSpec([None, None], tf.int64), tf.RaggedTensorSpec([None, None], tf.int64))
    sparse = tf.sparse.from_dense(tf.constant([[1, 0], [2, 3]], tf.int64))
    given = GraphCall(function)([sparse, tf.ragged.constant([[1], [2, 3]], tf.int64)])
    assert tf.sparse.to_dense(given["sparse"]).numpy().tolist() == [[1, 0], [2, 3]]
    assert given["ragged"].to_list() == [[2], [4, 6]]


def test_what_the_graph_raises_is_raised():
    function = concrete(tf.strings.to_number, tf.TensorSpec([None], tf.string))
    with pytest.raises(tf.errors.InvalidArgumentError):
        GraphCall(function)([tf.constant(["no number"])])


def test_a_table_of_the_graph_is_looked_up():
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(["a"], tf.constant([7], tf.int64)), default_value=-1
    )
    function = concrete(table.lookup, tf.TensorSpec([None], tf.string))
    assert GraphCall(function)([tf.constant(["a", "b"])]).numpy().tolist() == [7, -1]
