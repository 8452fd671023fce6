from solution import slugify


def test_words_are_joined_by_hyphens():
    assert slugify("Hello World") == "hello-world"


def test_a_run_of_other_characters_is_one_hyphen():
    assert slugify("Rock & Roll -- live!") == "rock-roll-live"


def test_nothing_of_it_stays_at_the_ends():
    assert slugify("  (draft) ") == "draft"
