from cotenant_common.model.digest import spec_digest


def test_the_order_of_keys_does_not_matter_and_content_does() -> None:
    assert spec_digest({"a": 1, "b": {"c": [1], "d": "é"}}) == spec_digest({"b": {"d": "é", "c": [1]}, "a": 1})
    assert spec_digest({"a": 1}) != spec_digest({"a": "1"})
    assert spec_digest({"a": [1, 2]}) != spec_digest({"a": [2, 1]})


def test_a_digest_written_by_an_older_release_still_matches() -> None:
    assert spec_digest({"containers": [{"name": "c"}]}) == "a86676cfb32454f1"
