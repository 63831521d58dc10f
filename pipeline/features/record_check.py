"""Do records parse by what the manifest says is in them? Whole blocks of records at a time."""

from __future__ import annotations

import tensorflow as tf

from pipeline.core.text import printable
from pipeline.core.verify import Checked
from pipeline.features.parsing import Parser

_RECORDS = 4096


class RecordCheck:
    """Parses records with the parser that trainers use; narrows down to the records that do not parse."""

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        signature = [tf.TensorSpec([None], tf.string)]
        self._parse = tf.function(self._rows, input_signature=signature).get_concrete_function()

    def _rows(self, records: tf.Tensor) -> tf.Tensor:
        parsed = self._parser.parse(records)
        # Every tensor counts, so that none of the parsing is pruned from the graph.
        sizes = [tf.shape(t, out_type=tf.int64)[0] if isinstance(t, tf.Tensor) else t.nrows() for t in parsed.values()]
        with tf.control_dependencies([tf.debugging.assert_equal(size, sizes[0]) for size in sizes[1:]]):
            return tf.identity(sizes[0])

    def __call__(self, payloads: list[bytes]) -> Checked:
        """The rows in the records, and what is wrong with those that do not parse (index, sentence)."""
        rows, bad = 0, list[tuple[int, str]]()
        for start in range(0, len(payloads), _RECORDS):
            rows += self._check(payloads[start : start + _RECORDS], start, bad)
        return Checked(rows, tuple(bad))

    def _check(self, payloads: list[bytes], start: int, bad: list[tuple[int, str]]) -> int:
        try:
            return int(self._parse(tf.constant(payloads, tf.string)))
        except (
            tf.errors.InvalidArgumentError,
            UnicodeDecodeError,
        ) as error:  # the message may quote the record's bytes
            if len(payloads) == 1:
                bad.append((start, f"does not parse by the manifest's feature spec: {_first_line(error)}"))
                return 0
        middle = len(payloads) // 2
        return self._check(payloads[:middle], start, bad) + self._check(payloads[middle:], start + middle, bad)


def _first_line(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "it is no tf.train.Example"
    return printable(str(getattr(error, "message", error)).split("\n")[0], 300)
