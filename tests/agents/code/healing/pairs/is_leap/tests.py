import unittest

import solution


class LeapYears(unittest.TestCase):
    def test_every_fourth(self):
        self.assertTrue(solution.is_leap(2024))
        self.assertFalse(solution.is_leap(2023))

    def test_centuries(self):
        self.assertFalse(solution.is_leap(1900))
        self.assertIs(solution.is_leap(2000), True)
