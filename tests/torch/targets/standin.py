# SPDX-License-Identifier: Apache-2.0
"""Runs the hooks on a CPython that has no torch: the few classes of torch that the plugin asks for,
written as torch writes them, and models made of them that change while they are called.

usage: standin.py GO ANSWER [variables]    the storm lasts while there is a file GO.storm
"""
import collections
import copy
import functools
import gc
import json
import os
import pickle
import sys
import threading
import time
import types


def module(name, **what):
    sys.modules[name] = made = types.ModuleType(name)
    made.__dict__.update(what)
    head, _, tail = name.rpartition(".")
    if head:
        setattr(sys.modules[head], tail, made)
    return made


class Parameter:
    pass


class Module:
    def __init__(self):
        self.__dict__.update(training=True, _parameters={}, _buffers={}, _modules={})

    def _wrapped_call_impl(self, *args, **kwargs):
        return self._call_impl(*args, **kwargs)

    def _call_impl(self, *args, **kwargs):
        return self.forward(*args, **kwargs)

    __call__ = _wrapped_call_impl

    def __setattr__(self, name, value):
        (self._modules if isinstance(value, Module) else self.__dict__)[name] = value

    def __getattr__(self, name):
        if name in self.__dict__.get("_modules", ()):
            return self._modules[name]
        raise AttributeError(name)

    def __delattr__(self, name):
        del self._modules[name]


class Optimizer:
    def __init__(self):
        if not getattr(type(self).step, "hooked", None):
            type(self).step = self.profile_hook_step(type(self).step)
            type(self).step.hooked = True

    @staticmethod
    def profile_hook_step(func):
        @functools.wraps(func)
        def wrapper(*args, **kwargs):
            out = func(*args, **kwargs)
            args[0]._optimizer_step_code()
            return out
        return wrapper

    def _optimizer_step_code(self):
        pass

    def step(self):
        raise NotImplementedError


class SGD(Optimizer):
    def step(self, closure=None):
        return closure() if closure else None


module("torch", Tensor=type("Tensor", (), {}), is_grad_enabled=lambda: True,
       __version__="stand-in")
for name in ("torch.nn", "torch.nn.modules", "torch.optim", "torch.autograd"):
    module(name)
module("torch.nn.modules.module", Module=Module)
module("torch.nn.parameter", Parameter=Parameter)
module("torch.optim.optimizer", Optimizer=Optimizer)
sys.modules["torch.nn"].Module = Module

calls = collections.Counter()
lock = threading.Lock()
plain = {name: Module.__dict__[name] for name in ("__call__", "_call_impl")}


class Leaf(Module):
    def forward(self, x, **more):
        if x < 0:
            raise ValueError(x)
        return x + len(more)


class Tree(Module):
    def __init__(self, **children):
        super().__init__()
        for name, child in children.items():
            setattr(self, name, child)

    def forward(self, x):
        for child in list(self._modules.values()):
            x = child(x)
        return x


def names(root, path=""):
    yield path or type(root).__name__
    for name, child in root._modules.items():
        yield from names(child, path + "." + name if path else name)


def call(root):
    with lock:
        calls.update(names(root))
    assert root(1) == 1


optimizer = SGD()
tree = Tree(a=Leaf(), b=Leaf(), deep=Tree(x=Leaf(), y=Leaf()))


def work():
    for n in range(40):
        call(tree)
        optimizer.step()
        if n % 3 == 0:
            tree.a, tree.b = tree.b, tree.a
        if n % 5 == 0:
            tree.deep.x = Leaf()
        if n % 7 == 0:
            tree.renamed = tree._modules.pop("b")
            call(tree)
            optimizer.step()  # changes are looked for in each step
            tree.b = tree._modules.pop("renamed")
        if n % 11 == 0:
            tree.deep._modules = dict(tree.deep._modules)
    for n in range(500):
        assert Leaf()(n, more=n) == n + 1
        calls["Leaf"] += 1
    try:
        tree(-1)
        raise AssertionError("it did not raise")
    except ValueError:
        pass
    threads = [threading.Thread(target=lambda: [call(tree) for _ in range(200)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for kept in (Module.__call__, SGD.step, optimizer.step):
        assert copy.copy(kept) and copy.deepcopy(kept) and pickle.loads(pickle.dumps(kept))
        assert kept.__name__ and kept.__code__ and isinstance(kept.__name__, str)
    assert SGD.step.hooked and optimizer.step(closure=lambda: 5) == 5
    gc.collect()


def storm():
    """Threads that begin and end, each calls models of its own and a common one."""
    own = Tree(a=Leaf(), b=Tree(c=Leaf()))
    for n in range(50):
        assert own(n) == n and tree(n) == n
        optimizer.step()
        own.a = Leaf()
        try:
            own(-1)
            raise AssertionError("it did not raise")
        except ValueError:
            pass


seen = collections.defaultdict(list)


def step(**there):
    """A step whose end finds these variables."""
    call(tree)
    optimizer.step()
    for name, value in there.items():
        seen[name].append(value)


class Thing:
    def turn(self, own):
        step(**{"own@Thing.turn": own})


class Other:
    def turn(self, own):
        own += 1000
        step()


def moves(n):
    a, x = 1, n
    step(x=x, a=a)


def moves_on(n):
    first, second, x, a = n, n, n + 0.5, 2
    step(x=x, a=a)
    del first, second


def shared(x):
    held = x * 2

    def inner():
        return held, x
    step(x=x, held=held)
    return inner()


def variables():
    """Functions that get another code, and many that live for one step, at addresses of others."""
    global everywhere
    for n in range(20):
        everywhere = n
        Thing().turn(n)
        Other().turn(n)
        moves(n)
        moves.__code__, moves_on.__code__ = moves_on.__code__, moves.__code__
        shared(n)
    for n in range(300):
        before = "".join("v%d = 'wrong'\n    " % i for i in range(n * 7 % 11))
        made = {"step": step, "n": n}
        exec("def f():\n    %sx = n * 3\n    step(x=x)\n" % before, made)
        made["f"]()
    with open(sys.argv[2], "w") as out:
        json.dump(seen, out)
    print("done", flush=True)


def main():
    print("ready", flush=True)
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.01)
    if len(sys.argv) > 3:
        variables()
        threading.Event().wait()
    work()
    with open(sys.argv[2], "w") as out:
        json.dump(calls, out)
    print("done", flush=True)
    while not os.path.exists(sys.argv[1] + ".storm"):
        time.sleep(0.01)
    while os.path.exists(sys.argv[1] + ".storm"):
        threads = [threading.Thread(target=storm) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    print("quiet", flush=True)
    while True:
        time.sleep(0.05)


main()
