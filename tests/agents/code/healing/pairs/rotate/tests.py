from solution import rotate


class TestRotate:
    def test_a_square(self):
        assert rotate([[1, 2], [3, 4]]) == [[3, 1], [4, 2]]

    def test_a_row_becomes_a_column(self):
        assert rotate([[1, 2, 3]]) == [[1], [2], [3]]

    def test_nothing(self):
        assert rotate([]) == []
