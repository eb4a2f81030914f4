"""LanguageModel.Forward: rows, positions, kinds of values, formats."""

import array
import math
import struct
import unittest

from support import PROMPT, ServerTest

from tlm.v1 import common_pb2, forward_pb2

LOGITS = forward_pb2.ROW_VALUES_LOGITS
LOG_PROBABILITIES = forward_pb2.ROW_VALUES_LOG_PROBABILITIES
PROBABILITIES = forward_pb2.ROW_VALUES_PROBABILITIES


def widen(data, dtype):
    """The floats of little-endian `data`."""
    if dtype == common_pb2.DATA_TYPE_FLOAT32:
        return list(array.array("f", data))
    bits = array.array("H", data)
    if dtype == common_pb2.DATA_TYPE_BFLOAT16:
        return [struct.unpack("<f", struct.pack("<I", b << 16))[0] for b in bits]
    return [struct.unpack("<e", struct.pack("<H", b))[0] for b in bits]


class ForwardTest(ServerTest):

    def rows(self, **fields):
        """{(sequence, position): row} of a request with these fields."""
        if "sequences" not in fields and "prompts" not in fields:
            fields["prompts"] = [PROMPT]
        messages = list(self.model.Forward(forward_pb2.ForwardRequest(**fields), timeout=60))
        kinds = [message.WhichOneof("event") for message in messages]
        self.assertEqual(kinds[0], "header")
        self.assertEqual(kinds[-1], "summary")
        self.assertEqual(set(kinds[1:-1]), {"rows"})
        header = messages[0].header
        rows = {}
        for message in messages[1:-1]:
            self.assertLessEqual(message.ByteSize(), 1 << 20)
            chunk = message.rows
            values = widen(chunk.data, header.dtype)
            self.assertEqual(len(values), chunk.row_count * header.row_width)
            for i in range(chunk.row_count):
                rows[chunk.sequence_index, chunk.first_position + i] = \
                    values[i * header.row_width:(i + 1) * header.row_width]
        self.assertEqual(len(rows), header.rows_total)
        return rows

    def test_positions_select_rows_of_all(self):
        last_position = len(self.tokenize(PROMPT)) - 1
        every = self.rows(all=True)
        self.assertEqual(sorted(every), [(0, p) for p in range(last_position + 1)])
        last = self.rows(last=True)
        self.assertEqual(last, {(0, last_position): every[0, last_position]})
        self.assertEqual(self.rows(), last)
        some = self.rows(indices={"indices": [0, 2]})
        self.assertEqual(some, {(0, 0): every[0, 0], (0, 2): every[0, 2]})

    def test_kinds_of_values_are_related_by_softmax(self):
        logits = self.rows(all=True, values=LOGITS)
        log_probabilities = self.rows(all=True, values=LOG_PROBABILITIES)
        probabilities = self.rows(all=True, values=PROBABILITIES)
        for key, row in logits.items():
            largest = max(row)
            log_sum = largest + math.log(math.fsum(math.exp(x - largest) for x in row))
            self.assertAlmostEqual(math.fsum(probabilities[key]), 1, places=4)
            for x, logprob, p in zip(row, log_probabilities[key], probabilities[key]):
                self.assertAlmostEqual(logprob, x - log_sum, places=4)
                self.assertAlmostEqual(p, math.exp(logprob), places=5)

    def test_ragged_batch_gives_the_rows_of_single_sequences(self):
        sequences = [[5, 6, 7], [9], list(range(1, 150)), [5, 6, 7, 8]]
        batch = self.rows(sequences=[{"ids": ids} for ids in sequences])
        for i, ids in enumerate(sequences):
            alone = self.rows(sequences=[{"ids": ids}])
            self.assertEqual(batch[i, len(ids) - 1], alone[0, len(ids) - 1])

    def test_prefix_rows_do_not_depend_on_what_follows(self):
        long = self.rows(sequences=[{"ids": list(range(1, 150))}], all=True)
        short = self.rows(sequences=[{"ids": list(range(1, 70))}], all=True)
        for key, row in short.items():
            self.assertEqual(row, long[key])

    def test_long_answers_come_in_chunks(self):
        ids = [1 + i % 1000 for i in range(700)]
        row_bytes = 4 * len(next(iter(self.rows().values())))
        self.assertGreater(len(ids) * row_bytes, 4 << 20)
        rows = self.rows(sequences=[{"ids": ids}], all=True)
        self.assertEqual(sorted(rows), [(0, p) for p in range(len(ids))])

    def test_prompts_are_tokenized(self):
        self.assertEqual(self.rows(prompts=[PROMPT]),
                         self.rows(sequences=[{"ids": self.tokenize(PROMPT)}]))

    def test_narrow_formats_round_the_same_values(self):
        full = next(iter(self.rows().values()))
        for dtype, relative in ((common_pb2.DATA_TYPE_BFLOAT16, 2 ** -8),
                                (common_pb2.DATA_TYPE_FLOAT16, 2 ** -11)):
            narrow = next(iter(self.rows(dtype=dtype).values()))
            for x, y in zip(full, narrow):
                self.assertLessEqual(abs(x - y), abs(x) * relative + 1e-6)

    def test_vocab_slice_cuts_rows(self):
        full = self.rows(values=LOG_PROBABILITIES)
        part = self.rows(values=LOG_PROBABILITIES, vocab_slice={"start": 100, "end": 300})
        self.assertEqual(part, {key: row[100:300] for key, row in full.items()})

    def test_top_k_gives_the_largest_values(self):
        full = self.rows(all=True)
        messages = list(self.model.Forward(
            forward_pb2.ForwardRequest(prompts=[PROMPT], all=True, top_k=7)))
        tops = [top for message in messages for top in message.rows.top]
        self.assertEqual(len(tops), len(full))
        for (_, row), top in zip(sorted(full.items()), tops):
            order = sorted(range(len(row)), key=lambda i, row=row: (-row[i], i))[:7]
            self.assertEqual(list(top.ids), order)
            self.assertEqual(list(top.values), [row[i] for i in order])


if __name__ == "__main__":
    unittest.main()
