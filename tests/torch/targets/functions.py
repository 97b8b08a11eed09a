# SPDX-License-Identifier: Apache-2.0
"""A program uses torch's functions and classes themselves: the same answers with us."""
import copy
import gc
import inspect
import pickle
import types
import warnings
import weakref

import torch
from torch import nn
from waiting import run

warnings.simplefilter("ignore")
FUNCTIONS = {"backward": torch.autograd.backward, "grad": torch.autograd.grad}


def functions():
    """The results above, and what stands in classes now."""
    return dict(FUNCTIONS, call=nn.Module.__call__, step=torch.optim.SGD.step,
                tensor_backward=torch.Tensor.backward,
                next=torch.utils.data.dataloader._BaseDataLoaderIter.__next__)


def looked_at():
    return {name: [inspect.isfunction(f), isinstance(f, types.FunctionType), f.__qualname__,
                   str(inspect.signature(f)), len(inspect.getsource(f)), repr(f),
                   weakref.ref(f)() is f, copy.deepcopy(f).__qualname__]
            for name, f in functions().items()}


def identical():
    return [torch.autograd.backward is FUNCTIONS["backward"],
            torch.autograd.grad is FUNCTIONS["grad"]]


def pickled():
    found = [pickle.loads(pickle.dumps(f)) is f for f in FUNCTIONS.values()]
    return found + [pickle.loads(pickle.dumps(nn.Module.__call__)).__qualname__]


def scripted():
    """torch.jit knows autograd.grad by its address."""
    def gradient(x: torch.Tensor):
        found = torch.autograd.grad([(x * x).sum()], [x])[0]
        return x if found is None else found
    return torch.jit.script(gradient)(torch.ones(3, requires_grad=True)).tolist()


def traced():
    net = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    graph = torch.jit.trace(net, torch.ones(2, 4))
    inner = getattr(graph, "1").graph
    return [len(list(g.nodes())) for g in (graph.graph, inner)] + [len(list(inner.outputs()))]


def compiled_with_hooks():
    """dynamo goes through Module.__call__ itself where a module has a hook."""
    if not hasattr(torch, "compile"):
        return []
    torch._dynamo.reset()
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    with torch.no_grad():
        net[0].weight.fill_(0.5)
        net[0].bias.fill_(0.25)
    net[0].register_forward_hook(lambda module, args, out: out * 2)
    return torch.compile(net, backend="eager", fullgraph=True)(torch.ones(1, 4)).tolist()


class Dispatched(torch.Tensor):
    """It finds what is called in a table that was made before us."""
    TABLE = {torch.Tensor.backward: lambda tensor: "mine"}

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function in cls.TABLE:
            return cls.TABLE[function](*args)
        return super().__torch_function__(function, types, args, kwargs or {})


def dispatched():
    tensor = torch.ones(1).as_subclass(Dispatched)
    return [tensor.backward(), torch.Tensor.backward in Dispatched.TABLE,
            torch.Tensor.backward == list(Dispatched.TABLE)[0],
            torch.Tensor.backward != list(Dispatched.TABLE)[0],
            torch.Tensor.backward == torch.Tensor.sum, torch.Tensor.backward == 1,
            torch.overrides.resolve_name(torch.Tensor.backward)]


def compiled_with_backward():
    """dynamo leaves its graph at Tensor.backward(), and comes back."""
    if not hasattr(torch, "compile"):
        return []
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    weight = torch.ones(3, requires_grad=True)

    @torch.compile(backend="eager")
    def step(x):
        loss = (x * weight).sum() * 2
        loss.backward()
        return weight.grad * 3
    return [step(torch.arange(3.0)).tolist(),
            sum(torch._dynamo.utils.counters["graph_break"].values())]


def freed():
    """Optimizers' classes and optimizers die as they did, with what they hold."""
    class Holder:
        pass
    held = Holder()

    class Own(torch.optim.SGD):
        def step(self, closure=None):
            assert held
            return super().step(closure)
    net = nn.Linear(2, 2)
    optimizer = Own(net.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    for _ in range(2):
        net(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        scheduler.step()
    dead = [weakref.ref(x) for x in (net, optimizer, Own, held)]
    del net, optimizer, scheduler, Own, held
    gc.collect()
    return [ref() is None for ref in dead]


PARTS = (looked_at, identical, pickled, scripted, traced, compiled_with_hooks,
         compiled_with_backward, dispatched, freed)


def everything():
    found = {}
    for part in PARTS:
        try:
            found[part.__name__] = part()
        except Exception as error:
            found[part.__name__] = "%s: %s" % (type(error).__name__, error)
    return found


everything()  # what happens once only
before = everything()
run(lambda: {"before": before, "now": everything()})
