from solution import binary_search


def test_every_item_is_found():
    items = [1, 3, 5, 7, 9, 11]
    for place, item in enumerate(items):
        assert binary_search(items, item) == place


def test_what_is_missing_is_not_found():
    assert binary_search([1, 3, 5], 4) == -1
    assert binary_search([1, 3, 5], 0) == -1
    assert binary_search([1, 3, 5], 9) == -1


def test_an_empty_list_holds_nothing():
    assert binary_search([], 1) == -1
