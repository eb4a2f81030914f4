"""The soak's judgement: what grows is found, what only varies is not."""

import os
import unittest

import process_watch
from process_watch import Sample


def series(rss, threads=lambda i: 20):
    return [Sample(i, int(rss(i)), 1000, 10, threads(i)) for i in range(100)]


class ProcessWatchTest(unittest.TestCase):

    def test_what_stays_is_flat(self):
        self.assertEqual(process_watch.faults(series(lambda i: 100000 + i % 7 * 300)), [])

    def test_warm_up_does_not_count(self):
        self.assertEqual(process_watch.faults(series(lambda i: min(100000, 50000 + 4000 * i))), [])

    def test_a_slow_leak_is_found(self):
        faults = process_watch.faults(series(lambda i: 100000 + 60 * i))
        self.assertEqual(len(faults), 1)
        self.assertIn("memory", faults[0])

    def test_threads_that_are_left_behind_are_found(self):
        faults = process_watch.faults(series(lambda i: 100000, threads=lambda i: 20 + i // 10))
        self.assertEqual(len(faults), 1)
        self.assertIn("threads", faults[0])

    def test_growth_is_of_medians(self):
        self.assertAlmostEqual(process_watch.growth(series(lambda i: 100000 if i < 70 else 101000)),
                               0.01)

    def test_samples_of_a_process(self):
        sample = process_watch.take(os.getpid(), 1.5)
        self.assertEqual(sample.seconds, 1.5)
        self.assertGreater(sample.rss_kib, sample.anonymous_kib)
        self.assertGreaterEqual(sample.threads, 1)
        self.assertGreaterEqual(sample.descriptors, 3)


if __name__ == "__main__":
    unittest.main()
