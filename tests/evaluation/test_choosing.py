"""Which attacks of a run somebody means."""

import pytest
from stores import make_run, row, setting

from brusle.errors import DataError, InputError
from brusle.evaluation.storing.choosing import choose, few


def said(chosen) -> list[tuple[int, str, int | None]]:
    return [(one.setting.number, one.row.image, one.row.target) for one in chosen]


@pytest.fixture
def run(tmp_path):
    plain = setting("BruSLe")
    other = setting("BruSLe palette=uniform", kind="BruSLe", options={"palette": "uniform"})
    bandit = setting("PixelBandit", goal="targeted", seed=3)
    aims = [row(0, target=1), row(3, image="image-0", target=2, status="failed", queries=100)]
    return make_run(
        tmp_path,
        [(plain, [row(0), row(1), row(2, "skipped", 0)]), (other, [row(0)]), (bandit, aims)],
    )


def test_everything_setting_by_setting(run) -> None:
    assert said(choose(run)) == [
        (1, "image-0", None),
        (1, "image-1", None),
        (1, "image-2", None),
        (2, "image-0", None),
        (3, "image-0", 1),
        (3, "image-0", 2),
    ]


def test_by_image_attack_setting_and_target(run) -> None:
    assert said(choose(run, ["image-1"])) == [(1, "image-1", None)]
    assert {one.setting.number for one in choose(run, attack="brusle")} == {1}
    assert {one.setting.number for one in choose(run, attack="BruSLe palette=uniform")} == {2}
    assert {one.setting.number for one in choose(run, attack="brusle:palette=uniform")} == {2}
    assert {one.setting.number for one in choose(run, attack="pixel-bandit")} == {3}
    assert {one.setting.number for one in choose(run, setting=2)} == {2}
    assert said(choose(run, target=2)) == [(3, "image-0", 2)]


def test_a_kind_means_all_its_settings_where_none_is_without_options(tmp_path) -> None:
    one, two = (
        setting(f"BruSLe z={z}", kind="BruSLe", options={"z": z}, pixels=p)
        for z, p in ((0.1, 3), (0.2, 4))
    )
    run = make_run(tmp_path, [(one, [row(0)]), (two, [row(0)])])
    assert {one.setting.number for one in choose(run, attack="brusle")} == {1, 2}
    assert {one.setting.number for one in choose(run, attack="brusle:z=0.2")} == {2}


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"images": ["image-11"]}, "no image 'image-11': did you mean"),
        ({"images": ["image-1"], "setting": 2}, "no image 'image-1' of what was chosen"),
        ({"attack": "sparse-rs"}, "no attack 'sparse-rs': known are BruSLe, BruSLe palette"),
        ({"setting": 9}, r"no setting 9: known are 1 \(BruSLe untargeted, 5 px\), 2"),
        ({"target": 7}, "no attack has the target 7: there are 1, 2, None"),
    ],
)
def test_what_is_not_there_is_named_with_what_is(run, wanted, message) -> None:
    with pytest.raises(InputError, match=message):
        choose(run, **wanted)


def test_a_run_without_rows_has_nothing_to_choose(tmp_path) -> None:
    with pytest.raises(DataError, match="no attack is stored yet"):
        choose(make_run(tmp_path, [(setting(), [])]))


def test_a_few_are_successes_of_different_settings_and_images(run) -> None:
    assert said(few(run, choose(run), 3)) == [
        (1, "image-0", None),
        (2, "image-0", None),
        (3, "image-0", 1),
    ]
    assert said(few(run, choose(run, setting=1), 2)) == [(1, "image-0", None), (1, "image-1", None)]
    assert len(few(run, choose(run), 99)) == 4  # the successes
    assert said(few(run, choose(run, target=2), 4)) == [(3, "image-0", 2)]  # or what was attacked
    assert few(run, choose(run, ["image-2"]), 4) == []


def test_files_of_one_setting_have_names_of_their_own(run) -> None:
    names = [one.file_name for one in choose(run, setting=3)]
    assert names == ["image-0-to-1", "image-0-to-2"]
