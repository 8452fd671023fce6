import unittest

from solution import LRU


class TestLRU(unittest.TestCase):
    def setUp(self):
        self.cache = LRU(2)
        self.cache.put("a", 1)
        self.cache.put("b", 2)

    def test_what_was_put_is_there(self):
        self.assertEqual(self.cache.get("a"), 1)
        self.assertIsNone(self.cache.get("z"))

    def test_the_oldest_goes(self):
        self.cache.put("c", 3)
        self.assertIsNone(self.cache.get("a"))
        self.assertEqual(self.cache.get("c"), 3)

    def test_a_look_counts_as_use(self):
        self.cache.get("a")
        self.cache.put("c", 3)
        self.assertEqual(self.cache.get("a"), 1)
        self.assertIsNone(self.cache.get("b"))


if __name__ == "__main__":
    unittest.main()
