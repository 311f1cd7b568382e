"""The names whose rights are remembered: the oldest goes for each new one."""

from agent.security.remembered_names import RememberedNames


def test_the_oldest_name_of_any_dict_leaves_for_each_that_is_too_many() -> None:
    names = RememberedNames(3)
    alice: dict[str, int] = {}
    bob: dict[str, int] = {}
    names.remember(alice, "a", 1)
    names.remember(bob, "a", 2)
    names.remember(alice, "b", 3)
    assert (alice, bob) == ({"a": 1, "b": 3}, {"a": 2})
    names.remember(bob, "c", 4)
    assert (alice, bob) == ({"b": 3}, {"a": 2, "c": 4})
    names.remember(alice, "a", 5)
    assert (alice, bob) == ({"b": 3, "a": 5}, {"c": 4})
    assert len(names) == 3
