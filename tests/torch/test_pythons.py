# SPDX-License-Identifier: Apache-2.0
"""The hooks on every CPython that is here, with a stand-in for torch: what they put in, and what
they leave behind, is a matter of the interpreter."""
import pytest
from cases import HERE, Case
from pythons import FULL, PYTHONS, is_threaded, minor_of, some

LOADS = 30 if FULL else 10
LEFT = """import sys, ctypes, gc; m = sys.modules['__main__']
print(all(m.Module.__dict__[k] is v for k, v in m.plain.items()),
      type(m.SGD.__dict__['step']).__name__, 'step' in vars(m.optimizer),
      type(m.Optimizer.__dict__['_optimizer_step_code']).__name__,
      [n for n in ('_probing_step', '_probing_role') if hasattr(sys, n)])"""
# PyDictObject's _ma_watcher_tag: one bit for each that watches it
WATCHED = """import sys, ctypes; m = sys.modules['__main__']
print(any(ctypes.c_uint64.from_address(id(d) + 24).value & 255
          for d in (m.tree._modules, m.tree.deep._modules)))"""

# Questions of memory.torch to tensors; 40 of 20 storages, and some of another class.
TENSORS = """import sys; m = sys.modules['__main__']; T = sys.modules['torch'].Tensor
class Storage:
    def nbytes(self): return 40
def made(kind, at):
    t = kind(); t.at = at; return t
T.numel = lambda t: 10; T.element_size = lambda t: 4; T.storage_offset = lambda t: 0
T.data_ptr = lambda t: t.at; T.untyped_storage = lambda t: Storage()
T.is_cpu = T.is_leaf = True; T.is_cuda = False
T.device = 'cpu'; T.dtype = 'torch.float32'; T.shape = (5, 2)
m.tensors = [made(T, 4096 * (1 + i % 20)) for i in range(40)]
m.others = [made(type('Other', (T,), {}), 1) for i in range(5)]"""
LOOKED = [["not asked", "Other", None, 1, None]] * 5 + [["other", None, "[5, 2]", 40, 800]]


def pytest_generate_tests(metafunc):
    """All that their own layouts decide is tried on each; the storm and the search take three."""
    heavy = ("test_hooks_with_a_stand_in_for_torch", "test_tensors_are_found_among_all_objects")
    name = metafunc.function.__name__
    taken = some(name) if name in heavy else PYTHONS
    metafunc.parametrize("cpython", list(taken.values()), ids=list(taken))


def said(case, code):
    done = case.target.probing("eval", code)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def test_hooks_with_a_stand_in_for_torch(world, cpython):
    if is_threaded(cpython):
        pytest.skip("it is refused there")
    case = Case(world, "standin.py", cpython, cold=True)
    done = case.target.probing("config", "torch.baseline_every=0")
    assert done.returncode == 0, done.stderr
    left = "True function False function []"
    assert said(case, LEFT) != left
    if minor_of(cpython) >= 14:
        assert said(case, WATCHED) == "True"
    wanted = case.run()
    assert case.counts() == wanted
    steps = case.target.rows("select count(*), min(module) from python.torch_trace "
                             "where stage = 'post step'")
    assert steps == [[47, "SGD"]]
    storm = world.tmp / "go.storm"
    storm.touch()
    for _ in range(LOADS):  # while threads begin, end and raise
        case.stop()
        case.load()
    case.stop()
    assert said(case, LEFT) == left
    if minor_of(cpython) >= 14:
        assert said(case, WATCHED) == "False"
    storm.unlink()
    case.target.wait_line("quiet")


def test_variables_where_their_functions_keep_them(world, cpython):
    """Other functions with the same name, cells, code that is replaced or freed: each value is that
    of its own step, and a name that is nowhere is not found."""
    if is_threaded(cpython):
        pytest.skip("it is refused there")
    case = Case(world, "standin.py", cpython, "variables", cold=True)
    names = ("x", "a", "held", "own@Thing.turn", "everywhere", "nowhere")
    done = case.target.probing("config", "torch.variables=" + ",".join(names))
    assert done.returncode == 0, done.stderr
    wanted = case.run()
    for name in names[:4]:
        rows = case.target.rows("select value_f64 from python.variables where name = '%s' and "
                                "value_f64 is not null order by ts" % name.partition("@")[0])
        assert [n for n, in rows] == wanted[name], name
    steps = case.target.rows("select count(*), max(value_f64) from python.variables "
                             "where name = 'everywhere' and func = '<module>'")
    assert steps == [[20 * 4 + 300, 19]]
    assert case.target.rows("select distinct value from python.variables where name = 'nowhere'") \
        == [["not there at the end of 10 steps"]]


def test_tensors_are_found_among_all_objects(world, cpython):
    if is_threaded(cpython):
        pytest.skip("it is refused there")
    case = Case(world, "standin.py", cpython, cold=True)
    case.stop()
    said(case, TENSORS)
    case.load()
    case.run()
    storm = world.tmp / "go.storm"
    storm.touch()
    for _ in range(LOADS):  # while threads begin, end and raise
        assert sorted(case.target.rows("select kind, name, shape, tensors, bytes from memory.torch "
                                       "where kind <> 'gradient'")) == LOOKED
    storm.unlink()
    case.target.wait_line("quiet")


def test_a_python_without_a_gil_is_refused(world, cpython):
    if not is_threaded(cpython):
        pytest.skip("it has a GIL")
    target = world.start(cpython, "-u", str(HERE / "targets" / "standin.py"),
                         str(world.tmp / "go"), str(world.tmp / "answer"))
    target.wait_line("ready")
    target.inject()
    done = target.probing("plugin", "load", "torch")
    assert done.returncode != 0 and "without a GIL" in done.stderr
    assert target.alive()
