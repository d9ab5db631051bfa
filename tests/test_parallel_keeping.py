"""States kept with orbax, each process its own part, and restored on other numbers of processes and devices."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bisaddle as bs
from bisaddle.devices import _sums
from tests.parallel_start import answer, together, worker

NEEDED = 'orbax is not here: pip install -c constraints.txt -e ".[orbax]"'


@pytest.fixture
def orbax():
    pytest.importorskip("orbax.checkpoint", reason=NEEDED)


def on(processes, devices, **order):
    order = {"do": "keeping", **order}
    if processes == 1:
        return [answer(worker({"devices": devices, **order}))]
    return together(processes, devices, **order)


@pytest.mark.slow
@pytest.mark.usefixtures("orbax")
@pytest.mark.parametrize(
    ("saved", "restored"), [((1, 4), (1, 1)), ((1, 4), (2, 2)), ((2, 2), (1, 1)), ((2, 1), (1, 4))]
)
def test_a_state_is_restored_on_other_processes_and_devices(saved, restored, tmp_path):
    folder = str(tmp_path / "state")
    first, *others = on(*saved, folder=folder, begun=False)
    assert all(other == first for other in others)
    assert len(list((tmp_path / "state").glob("ocdbt.process_*"))) == saved[0]  # each has written its own part
    for found in on(*restored, folder=folder, begun=True):
        assert found["kept"] == first["kept"]
        np.testing.assert_allclose(found["after"], first["after"], rtol=1e-12, atol=1e-14)


@pytest.mark.slow
@pytest.mark.usefixtures("orbax")
@pytest.mark.parametrize(("processes", "who"), [(2, [0]), (3, [0, 1])])
def test_a_state_of_some_of_the_processes_is_kept_by_them_alone(processes, who, tmp_path):
    folder = str(tmp_path / "state")
    first, *others = on(processes, 2, folder=folder, begun=False, who=who)
    assert others == [first] * (len(who) - 1) + [{}] * (processes - len(who))
    assert on(processes, 2, folder=folder, begun=True, who=who)[0] == first  # on the same devices bit by bit
    (one,) = on(1, 4, folder=folder, begun=True)
    assert one["kept"] == first["kept"]
    np.testing.assert_allclose(one["after"], first["after"], rtol=1e-12, atol=1e-14)


@pytest.mark.slow
@pytest.mark.usefixtures("orbax")
def test_a_state_without_a_part_in_process_0_is_refused(tmp_path):
    nobody, found = on(2, 2, folder=str(tmp_path / "state"), begun=False, who=[1])
    assert nobody == {} and "process 0 has to be among the processes" in found["refused"]
    assert not list(tmp_path.iterdir())


def tree():
    return {"point": bs.Point(jnp.arange(3.0), jnp.ones((2, 2))), "key": jax.random.key(3), "k": np.arange(4), "t": 0.1}


@pytest.mark.usefixtures("orbax")
def test_keys_numpy_arrays_and_numbers_come_back(tmp_path):
    given = tree()
    bs.parallel.save(tmp_path / "kept", given)
    found = bs.parallel.restore(tmp_path / "kept", jax.tree.map(lambda leaf: leaf, given))
    assert jax.tree.structure(found) == jax.tree.structure(given)
    assert found["t"] == 0.1 and found["k"].tolist() == [0, 1, 2, 3]
    assert jax.random.bits(found["key"]) == jax.random.bits(given["key"])
    assert found["point"].x.tolist() == [0, 1, 2] and found["point"].theta.tolist() == [[1, 1], [1, 1]]


@pytest.mark.usefixtures("orbax")
def test_what_does_not_fit_is_refused_in_words(tmp_path):
    folder, given = tmp_path / "kept", tree()
    bs.parallel.save(folder, given)
    with pytest.raises(ValueError, match="is there already"):
        bs.parallel.save(folder, given)
    for like, words in (
        ({**given, "k": np.arange(5)}, r"\['k'\] is int64 of shape \(4,\), not int64 of shape \(5,\)"),
        ({**given, "k": np.arange(4.0)}, "not float64"),
        ({**given, "more": 1.0}, r"5 arrays against 6; first by \['more'\]"),
        ({}, "no array"),
    ):
        with pytest.raises(ValueError, match=words):
            bs.parallel.restore(folder, like)
    with pytest.raises(ValueError, match="is no folder"):
        bs.parallel.restore(tmp_path / "none", given)
    with pytest.raises(ValueError, match="nothing that bs.parallel.save has written"):
        bs.parallel.restore(tmp_path, given)
    with pytest.raises(ValueError, match="must be an array, given str"):
        bs.parallel.save(tmp_path / "other", {"a": "words"})
    with pytest.raises(ValueError, match="real numbers, given complex"):
        bs.parallel.save(tmp_path / "other", {"a": jnp.ones(2) * 1j})
    with pytest.raises(ValueError, match="outside of jit"):
        jax.jit(lambda a: bs.parallel.save(tmp_path / "other", a))(1.0)


@pytest.mark.usefixtures("orbax")
def test_damage_never_changes_a_digit(tmp_path):
    folder, given = tmp_path / "kept", {"a": jnp.asarray(np.random.default_rng(0).normal(size=500))}
    bs.parallel.save(folder, given)
    refused = 0
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        content = path.read_bytes()
        for place in {0, len(content) // 2} if content else ():
            path.write_bytes(content[:place] + bytes([content[place] ^ 255]) + content[place + 1 :])
            try:
                assert bs.parallel.restore(folder, given)["a"].tolist() == given["a"].tolist(), path
            except ValueError as error:
                assert str(folder) in str(error)
                refused += 1
        path.write_bytes(content)
    assert refused >= 4


def test_the_sums_of_a_large_array_take_no_copy_of_it():
    array = jnp.ones((200, 500))
    assert _sums.lower(array).compile().memory_analysis().temp_size_in_bytes < array.nbytes / 10


def test_without_the_extra_the_message_names_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "orbax", None)
    monkeypatch.setitem(sys.modules, "orbax.checkpoint", None)
    for call in (bs.parallel.save, bs.parallel.restore):
        with pytest.raises(ImportError, match=r"bisaddle\[orbax\]"):
            call(tmp_path / "kept", jnp.ones(2))
