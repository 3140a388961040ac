"""Job shops in files: both formats of job shops, the FJS format, arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rl4co.core.errors import ConfigError, FileFormatError, InvalidInstanceError
from rl4co.data.formats import read_instance
from rl4co.data.formats.shop import ShopInstance, batch_instances
from rl4co.data.formats.shop_files import read_fjs, read_jsplib, read_l2d
from rl4co.data.formats.shop_texts import format_fjs, format_jsplib, format_taillard

#: Two jobs on three machines: (machine 2, 5), (0, 3), (1, 4) and (1, 2), (2, 6), (0, 1).
SHOP = ShopInstance("two", 3, (({2: 5}, {0: 3}, {1: 4}), ({1: 2}, {2: 6}, {0: 1})))
STANDARD = "# remark\n#\n2 3\n2 5 0 3 1 4\n1 2 2 6 0 1\n"
FROM_ONE = "2 3\n3 5 1 3 2 4\n2 2 3 6 1 1\n"
TAILLARD = """Nb of jobs, Nb of Machines, Time seed, Machine seed, Upper bound, Lower bound
 2 3 840612802 398197754 15 12
Times
 5 3 4
 2 6 1
Machines
 3 1 2
 2 3 1
"""
FLEXIBLE = ShopInstance("flex", 3, (({0: 4, 2: 5}, {1: 7}), ({0: 1, 1: 2, 2: 3},)))
FJS = "2 3 2\n2 2 1 4 3 5 1 2 7\n1 3 1 1 2 2 3 3\n"
FJS_FROM_ZERO = "2 3\n2 2 0 4 2 5 1 1 7\n1 3 0 1 1 2 2 3\n"


def written(folder: Path, text: str, name: str = "file.txt") -> Path:
    path = folder / name
    path.write_text(text)
    return path


# ---------------------------------------------------------------- reading


@pytest.mark.parametrize("text", [STANDARD, FROM_ONE, STANDARD.replace("\n1 2", " 1 2")])
def test_standard_format(text: str, tmp_path: Path):
    """Machines from 0 or 1, remarks, and lines that are broken elsewhere."""
    (shop,) = read_jsplib(written(tmp_path, text, "two"))
    assert shop.jobs == SHOP.jobs
    assert (shop.name, shop.num_machines, shop.num_jobs, shop.num_ops) == ("two", 3, 2, 6)
    assert not shop.is_flexible


def test_taillard_format(tmp_path: Path):
    """One instance or several, with the bounds of the header."""
    (shop,) = read_jsplib(written(tmp_path, TAILLARD))
    assert shop.jobs == SHOP.jobs
    assert (shop.lower_bound, shop.upper_bound) == (12, 15)
    other = TAILLARD.replace("15 12", "30 20").replace("5 3 4", "9 9 9")
    both = read_jsplib(written(tmp_path, TAILLARD + other, "tai.txt"))
    assert [s.name for s in both] == ["tai_1", "tai_2"]
    assert both[0].jobs == SHOP.jobs
    assert both[1].jobs[0] == ({2: 9}, {0: 9}, {1: 9})
    assert both[1].upper_bound == 30
    bare = read_jsplib(written(tmp_path, TAILLARD.split("\n", 1)[1], "bare.txt"))
    assert bare[0].jobs == SHOP.jobs


@pytest.mark.parametrize("text", [FJS, FJS_FROM_ZERO])
def test_fjs_format(text: str, tmp_path: Path):
    shop = read_fjs(written(tmp_path, text, "flex.fjs"))
    assert shop.jobs == FLEXIBLE.jobs
    assert shop.num_machines == 3
    assert shop.is_flexible


def test_machines_from(tmp_path: Path):
    """A file that uses neither the first nor the last number is read from 1, unless one says so."""
    path = written(tmp_path, "1 3\n1 1 1 5\n")
    assert read_fjs(path).jobs == (({0: 5},),)
    assert read_fjs(path, machines_from=0).jobs == (({1: 5},),)
    with pytest.raises(FileFormatError, match="0 and 3"):
        read_fjs(written(tmp_path, "1 3\n1 2 0 5 3 4\n"))
    with pytest.raises(FileFormatError, match=r"job 0, operation 0: .*machines"):
        read_fjs(written(tmp_path, "1 3\n1 1 0 5\n"), machines_from=1)


# ---------------------------------------------------------------- round trips


def test_what_is_written_is_read(tmp_path: Path):
    for text in (format_jsplib(SHOP), format_taillard(SHOP)):
        (shop,) = read_jsplib(written(tmp_path, text))
        assert shop.jobs == SHOP.jobs
    for shop in (SHOP, FLEXIBLE):
        for first in (0, 1):
            text = format_fjs(shop, machines_from=first)
            assert read_fjs(written(tmp_path, text), machines_from=first).jobs == shop.jobs
    for write in (format_jsplib, format_taillard):
        with pytest.raises(InvalidInstanceError, match="job 0 of flex; write it in the FJS format"):
            write(FLEXIBLE)


def test_tensors():
    """Operations in one row, machines as rows, and back; different sizes are padded."""
    td = batch_instances([FLEXIBLE, SHOP])
    assert td["start_op_per_job"].tolist() == [[0, 2], [0, 3]]
    assert td["end_op_per_job"].tolist() == [[1, 2], [2, 5]]
    assert td["pad_mask"].tolist() == [[False] * 3 + [True] * 3, [False] * 6]
    assert td["proc_times"][0].tolist() == [
        [4.0, 0, 1, 0, 0, 0],
        [0.0, 7, 2, 0, 0, 0],
        [5.0, 0, 3, 0, 0, 0],
    ]
    for row, shop in enumerate((FLEXIBLE, SHOP)):
        assert ShopInstance.from_tensordict(td[row]).jobs == shop.jobs
    three = ShopInstance("three", 2, (({0: 1},), ({1: 2},), ({0: 3},)))
    mixed = batch_instances([three, SHOP])
    assert mixed["start_op_per_job"].tolist() == [[0, 1, 2], [0, 3, 6]]
    assert mixed["end_op_per_job"].tolist() == [[0, 1, 2], [2, 5, 6]]
    assert mixed["pad_mask"].shape == (2, 7)
    for row, shop in enumerate((three, SHOP)):
        assert ShopInstance.from_tensordict(mixed[row]).jobs == shop.jobs
    with pytest.raises(ConfigError, match="at least one instance"):
        batch_instances([])
    with pytest.raises(ConfigError, match="index the batch first"):
        ShopInstance.from_tensordict(td)
    half = td[0].clone()
    half["proc_times"] = half["proc_times"] / 2
    with pytest.raises(InvalidInstanceError, match="whole numbers"):
        ShopInstance.from_tensordict(half)


def test_operations_that_take_no_time(tmp_path: Path):
    """They are read as they are, with a warning, and left out of tensors; mixed with others, they
    are rejected."""
    path = written(tmp_path, STANDARD.replace("0 1\n", "0 0\n"))
    with pytest.warns(UserWarning, match=r"file.txt, job 1, operation 2: .* got 0; .* leave out"):
        (shop,) = read_jsplib(path)
    assert shop.jobs[1][2] == {0: 0}
    assert shop.to_tensordict()["end_op_per_job"].tolist() == [2, 4]
    with pytest.raises(InvalidInstanceError, match="none in job 0 of x"):
        batch_instances([ShopInstance("x", 1, (({0: 0},),))])
    with pytest.raises(FileFormatError, match=r"line 2, job 0, operation 0: .*0 on some machines"):
        read_fjs(written(tmp_path, FJS.replace("1 4 3 5", "1 4 3 0")))
    with pytest.warns(UserWarning, match=r"flex.fjs, job 0, operation 1: .*processing"):
        read_fjs(written(tmp_path, FJS.replace("1 2 7", "1 2 0"), "flex.fjs"))
    lines = TAILLARD.replace(" 5 3 4", " 0 3 0")
    with pytest.warns(UserWarning, match=r"job 0, operation 0 \(and 1 more\)"):
        read_jsplib(written(tmp_path, lines))


def test_jobs_that_do_not_visit_every_machine_are_written(tmp_path: Path):
    """They end with operations of no time, which are left out when they are read again."""
    short = ShopInstance("short", 3, (({2: 5}, {0: 3}), ({1: 2}, {2: 6}, {0: 1})))
    assert format_jsplib(short).splitlines()[2] == "2 5 0 3 1 0"
    for text in (format_jsplib(short), format_taillard(short)):
        with pytest.warns(UserWarning, match="job 0, operation 2"):
            (shop,) = read_jsplib(written(tmp_path, text))
        assert shop.timed_jobs == short.jobs
    long = ShopInstance("long", 1, (({0: 5},), ({0: 1}, {0: 2})))
    with pytest.raises(InvalidInstanceError, match="got 2 with up to 1 in job 1 of long; write it"):
        format_jsplib(long)


# ---------------------------------------------------------------- damaged files


@pytest.mark.parametrize("text", [STANDARD, TAILLARD, FJS], ids=["standard", "taillard", "fjs"])
def test_truncated_anywhere(text: str, tmp_path: Path):
    """Cut before any number of the jobs: the message names a line, and the job if it is known."""
    read = read_fjs if text is FJS else read_jsplib
    begin = text.index("\n", text.index("2 3"))
    for cut in range(begin + 1, len(text.rstrip())):
        if text[cut - 1].isdigit() and text[cut].isdigit():
            continue  # would leave a shorter number
        path = written(tmp_path, text[:cut])
        with pytest.raises(FileFormatError) as caught:
            read(path)
        message = str(caught.value)
        assert "the file is truncated" in message
        if "a section" not in message:
            assert ", line " in message and ", job " in message


DAMAGES = {
    "a machine that is not there": (STANDARD.replace("2 6", "7 6"), "line 5, job 1, operation 1"),
    "a word": (STANDARD.replace("2 6", "2 six"), "line 5: expected numbers, got 'six'"),
    "half a unit": (STANDARD.replace("2 6", "2 6.5"), "job 1, operation 1: expected processing"),
    "negative": (STANDARD.replace("2 6", "2 -6"), "processing time, a whole number from 0, got -6"),
    "more": (STANDARD + "4 4\n", "line 6: expected the end of the file after 2 jobs, got 4"),
    "no jobs": ("0 3\n", "header: expected number of jobs, a whole number from 1, got 0"),
    "no numbers": ("# nothing\n", "number of jobs, got the end of the file"),
    "no machines": (TAILLARD.split("Machines\n")[0], "a section Machines"),
    "underscores": (STANDARD.replace("2 6", "2 1_0"), "expected numbers, got '1_0'"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_job_shops(damage: str, tmp_path: Path):
    text, message = DAMAGES[damage]
    with pytest.raises(FileFormatError) as caught:
        read_jsplib(written(tmp_path, text))
    assert message in str(caught.value)


def test_damaged_flexible_job_shops(tmp_path: Path):
    for text, message in (
        (FJS.replace("1 3 1 1", "0 3 1 1"), "line 3, job 1: expected number of operations"),
        (FJS.replace("1 3 1 1", "1 4 1 1"), "job 1, operation 0: expected number of eligible"),
        (FJS.replace("1 4 3 5", "1 4 1 5"), "line 2, job 0, operation 0: expected each machine"),
        (FJS + "1\n", "line 4: expected the end of the file after 2 jobs"),
    ):
        with pytest.raises(FileFormatError) as caught:
            read_fjs(written(tmp_path, text))
        assert message in str(caught.value)


#: Three jobs on two machines, one line each.
THREE_LINES = "3 2\n0 3 1 1\n1 4 0 5\n0 2 1 6\n"
#: Three jobs with two operations, one, and two.
THREE_FLEXIBLE = "3 2 1\n2 1 1 3 1 2 4\n1 2 1 2 2 1\n2 1 2 6 1 1 5\n"


@pytest.mark.parametrize("job", range(3))
@pytest.mark.parametrize("text", [THREE_LINES, THREE_FLEXIBLE], ids=["standard", "fjs"])
def test_a_missing_number_names_its_job(text: str, job: int, tmp_path: Path):
    """With a line for each job, not the one in which the reading gets stuck."""
    read = read_fjs if text is THREE_FLEXIBLE else read_jsplib
    lines = text.splitlines()
    words = lines[1 + job].split()
    for missing in range(len(words)):
        lines[1 + job] = " ".join(words[:missing] + words[missing + 1 :])
        with pytest.raises(FileFormatError, match=rf"line {2 + job}, job {job}\b"):
            read(written(tmp_path, "\n".join(lines)))


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("2 2\n0 3 1\n1 4 0 5\n", "line 2, job 0, operation 1: expected processing time"),
        ("2 2\n0 3\n1 4 0 5\n", "line 2, job 0, operation 1: expected machine"),
        ("2 2\n0 3 1\n1 4 0\n", "line 2, job 0, operation 1: expected processing time"),
        (TAILLARD.replace(" 5 3 4", " 5 3"), "line 4, Times, job 0, operation 2"),
        (TAILLARD.replace(" 3 1 2", " 3 1"), "line 7, Machines, job 0, operation 2"),
    ],
)
def test_a_missing_number_names_its_operation(text: str, place: str, tmp_path: Path):
    with pytest.raises(FileFormatError) as caught:
        read_jsplib(written(tmp_path, text, "short.jsp"))
    assert place in str(caught.value) and "got the end of the line" in str(caught.value)


def test_a_missing_number_of_a_flexible_job_shop(tmp_path: Path):
    place = "line 2, job 0, operation 1: expected processing time, got the end of the line"
    with pytest.raises(FileFormatError, match=place):
        read_fjs(written(tmp_path, "2 2 1\n2 1 1 3 1 2\n1 1 1 2\n"))
    # Even where the next line could fill the gap: without its first number it is a job, too.
    with pytest.raises(FileFormatError, match=place):
        read_fjs(written(tmp_path, "2 2 1\n2 1 1 3 1 2\n2 1 2 1 1 2 5\n"))


@pytest.mark.parametrize(
    "text",
    [
        "2 3\n2 5 0 3 1 4 1 2\n2 6 0 1\n",
        "2 3\n2 5 0 3 1\n4 1 2 2 6 0 1\n",
        "2 3 2 5 0 3 1 4\n1 2 2 6 0 1\n",
        "2\n3\n2 5 0 3 1 4\n\n# remark\n1 2 2 6 0 1\n",
        "2 3\n2 5\n0 3\n1 4\n1 2\n2 6\n0 1\n",
    ],
)
def test_lines_that_end_anywhere(text: str, tmp_path: Path):
    """Also as many lines as jobs, that are no jobs."""
    assert read_jsplib(written(tmp_path, text))[0].jobs == SHOP.jobs


@pytest.mark.parametrize(
    "text",
    ["2 3 2\n2 2 1 4 3 5\n1 2 7 1 3 1 1 2 2 3 3\n", "2 3\n2 2 1 4\n3 5\n1 2 7\n1 3 1 1 2 2 3 3"],
)
def test_lines_of_flexible_job_shops_that_end_anywhere(text: str, tmp_path: Path):
    assert read_fjs(written(tmp_path, text)).jobs == FLEXIBLE.jobs


def test_a_missing_number_of_the_first_job_is_one_of_its_format(tmp_path: Path):
    """The other lines tell the standard format from the FJS format."""
    text = "3 3\n2 5 0 3 1\n1 2 2 6 0 1\n0 1 1 1 2 1\n"
    with pytest.raises(FileFormatError, match=r"line 2, job 0, operation 2: .*processing"):
        read_instance(written(tmp_path, text, "short.jsp"))


# ---------------------------------------------------------------- arrays


def test_arrays(tmp_path: Path):
    array = np.array([[[[5, 3, 4], [2, 6, 1]], [[3, 1, 2], [2, 3, 1]]]], dtype=np.int32)
    path = tmp_path / "set.npy"
    np.save(path, np.concatenate([array, array]))
    shops = read_l2d(path)
    assert [shop.name for shop in shops] == ["set_0", "set_1"]
    assert shops[1].jobs == SHOP.jobs
    np.save(path, array.astype(np.float64))
    with pytest.raises(FileFormatError, match=r"whole numbers of shape \[B, 2, J, M\]"):
        read_l2d(path)
    np.save(path, array - 1)
    with pytest.raises(FileFormatError, match="machines from 1 to 3"):
        read_l2d(path)
    np.save(path, np.array([{}]), allow_pickle=True)
    with pytest.raises(FileFormatError, match="an array of numbers"):
        read_l2d(path)
