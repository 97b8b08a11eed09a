# SPDX-License-Identifier: Apache-2.0
"""Parts of torch that look into modules, replace their methods or step optimizers in ways of their
own: before us, with us, and with what was made before us; the same to the last bit.

Each part gives tensors and texts; an exception is a text, too, as not every torch has every part.
"""
import collections
import copy
import io
import pickle
import warnings

import torch
import torch.nn.utils.prune
from torch import nn
from waiting import run

warnings.simplefilter("ignore")
kept = {}
calls = collections.Counter()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.act, self.second = nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 3)

    def forward(self, x):
        return self.second(self.act(self.first(x)))


def some(*shape):
    n = 1
    for size in shape:
        n *= size
    return torch.linspace(-1, 1, n).reshape(shape)


def once(make):
    """The result of make() when it was first asked, before us."""
    if make.__name__ not in kept:
        torch.manual_seed(3)
        kept[make.__name__] = make()
    return kept[make.__name__]


def trained(net, optimizer, scheduler=None, steps=3, closure=False):
    def compute():
        optimizer.zero_grad()
        loss = net(some(4, 6)).square().sum()
        loss.backward()
        return loss
    found = []
    for _ in range(steps):
        if closure:
            found.append(optimizer.step(compute).detach())
        else:
            found.append(compute().detach())
            optimizer.step()
        if scheduler:
            scheduler.step()
            found.append(str(scheduler.get_last_lr()))
    return found + [p.detach().clone() for p in net.parameters()]


def optimizers():
    found = []
    for name, more in (("LBFGS", {}), ("Adam", {"foreach": True}), ("AdamW", {"fused": True}),
                       ("SGD", {"fused": True}), ("SGD", {"foreach": True, "momentum": 0.9}),
                       ("Adam", {"capturable": False, "amsgrad": True}), ("Adagrad", {}),
                       ("NAdam", {}), ("RAdam", {}), ("Rprop", {}), ("RMSprop", {}), ("ASGD", {}),
                       ("Adamax", {}), ("Adadelta", {}), ("Adafactor", {})):
        torch.manual_seed(4)
        net = Net()
        try:
            optimizer = getattr(torch.optim, name)(net.parameters(), lr=0.01, **more)
            found += trained(net, optimizer, closure=name == "LBFGS" or name == "Adagrad")
            found.append(repr(optimizer))
            other = copy.deepcopy(optimizer)
            other.load_state_dict(optimizer.state_dict())
            other.step()
            pickle.dumps(optimizer)
        except (AttributeError, TypeError, RuntimeError) as error:
            found.append(str(error))
    return found


def schedulers():
    lr = torch.optim.lr_scheduler
    found = []
    for make in (lambda o: lr.OneCycleLR(o, 0.1, total_steps=9),
                 lambda o: lr.SequentialLR(o, [lr.ConstantLR(o), lr.ExponentialLR(o, 0.9)], [2]),
                 lambda o: lr.LambdaLR(o, lambda n: 0.9 ** n), lambda o: lr.CyclicLR(o, 0.01, 0.1),
                 lambda o: lr.CosineAnnealingWarmRestarts(o, 2)):
        net = Net()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        found += trained(net, optimizer, make(optimizer))
    return found


class Scheduled:
    def __init__(self):
        self.net = Net()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1)
        self.state = copy.deepcopy((self.net.state_dict(), self.optimizer.state_dict(),
                                    self.scheduler.state_dict()))


def kept_scheduler():
    s = once(Scheduled)
    for what, state in zip((s.net, s.optimizer, s.scheduler), s.state):
        what.load_state_dict(copy.deepcopy(state))
    return trained(s.net, s.optimizer, s.scheduler)


def averaged():
    net = Net()
    mean = torch.optim.swa_utils.AveragedModel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    found = trained(net, optimizer, torch.optim.swa_utils.SWALR(optimizer, swa_lr=0.05))
    mean.update_parameters(net)
    torch.optim.swa_utils.update_bn([some(4, 6)], mean)
    return found + [mean(some(4, 6)).detach()]


def parametrized():
    net = nn.Sequential(nn.utils.weight_norm(nn.Linear(6, 6)),
                        nn.utils.spectral_norm(nn.Linear(6, 6)))
    third = nn.utils.parametrizations.orthogonal(nn.Linear(6, 6))
    pruned = nn.Linear(6, 6)
    nn.utils.prune.l1_unstructured(pruned, "weight", 0.5)
    net.extend([third, pruned])
    found = trained(net, torch.optim.SGD(net.parameters(), lr=0.1))
    nn.utils.prune.remove(pruned, "weight")
    nn.utils.parametrize.remove_parametrizations(third, "weight")
    nn.utils.remove_weight_norm(net[0])
    return found + [net(some(4, 6)).detach()]


def quantized():
    quantization = torch.ao.quantization
    net = nn.Sequential(quantization.QuantStub(), nn.Linear(6, 6), nn.ReLU(),
                        quantization.DeQuantStub()).eval()
    net.qconfig = quantization.get_default_qconfig("fbgemm")
    ready = quantization.prepare(net)
    ready(some(4, 6))
    found = [ready(some(4, 6))]
    converted = quantization.convert(ready)
    found.append(converted(some(4, 6)))
    dynamic = quantization.quantize_dynamic(Net(), {nn.Linear}, dtype=torch.qint8)
    return found + [dynamic(some(4, 6)), str(converted)]


def quantized_graph():
    from torch.ao.quantization import get_default_qconfig_mapping, quantize_fx
    ready = quantize_fx.prepare_fx(Net().eval(), get_default_qconfig_mapping("fbgemm"),
                                   (some(4, 6),))
    ready(some(4, 6))
    return [quantize_fx.convert_fx(ready)(some(4, 6)), ready.code]


def traced_graph():
    graph = torch.fx.symbolic_trace(Net())
    before = torch.fx.symbolic_trace(once(Net))
    shapes = torch.fx.Interpreter(graph).run(some(4, 6)).detach()
    return [graph(some(4, 6)).detach(), graph.code, before.code, before(some(4, 6)).detach(),
            once(SymbolicNet)(some(4, 6)).detach(), shapes, str(graph.graph),
            copy.deepcopy(graph)(some(4, 6)).detach(),
            pickle.loads(pickle.dumps(graph))(some(4, 6)).detach()]


def SymbolicNet():
    return torch.fx.symbolic_trace(Net())


def JitNet():
    return torch.jit.trace(Net(), some(4, 6)), torch.jit.script(Net())


def jitted():
    net = Net()
    found = [module(some(4, 6)).detach() for module in once(JitNet) for _ in range(3)]
    traced, scripted = torch.jit.trace(net, some(4, 6)), torch.jit.script(net)
    stored = io.BytesIO()
    torch.jit.save(traced, stored)
    stored.seek(0)
    found += [traced.code, scripted.code, torch.jit.load(stored)(some(4, 6)).detach()]
    frozen = torch.jit.freeze(torch.jit.script(Net().eval()))
    holder = nn.Sequential(traced, nn.Linear(3, 2))
    return found + [traced(some(4, 6)).detach(), scripted(some(4, 6)).detach(),
                    frozen(some(4, 6)).detach(), holder(some(4, 6)).detach(),
                    torch.jit.trace_module(net, {"forward": some(4, 6)}).code]


def ExportedNet():
    return torch.export.export(Net(), (some(4, 6),))


def exported():
    program = torch.export.export(Net(), (some(4, 6),))
    strict = torch.export.export(Net(), (some(4, 6),), strict=True)
    return [str(program.graph), str(strict.graph), program.module()(some(4, 6)).detach(),
            once(ExportedNet).module()(some(4, 6)).detach(),
            torch.export.unflatten(program)(some(4, 6)).detach()]


def functional():
    net = once(Net)
    parameters = {name: p.detach() for name, p in net.named_parameters()}

    def loss(values, x):
        return torch.func.functional_call(net, values, (x,)).square().sum()
    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, some(4, 6))
    nets = [Net() for _ in range(3)]
    stacked, buffers = torch.func.stack_module_state(nets)
    base = copy.deepcopy(nets[0]).to("meta")
    many = torch.func.vmap(lambda p, b: torch.func.functional_call(base, (p, b), (some(4, 6),)))
    out, tangent = torch.func.jvp(lambda x: net(x), (some(4, 6),), (some(4, 6),))
    return list(each.values()) + [many(stacked, buffers).detach(), out.detach(), tangent.detach(),
                                  torch.func.hessian(lambda x: net(x).sum())(some(6)).detach()]


def gradients():
    net = Net()
    x = some(4, 6).requires_grad_()
    first, = torch.autograd.grad(net(x).square().sum(), x, create_graph=True)
    first.square().sum().backward()
    jacobian = torch.autograd.functional.jacobian(lambda y: net(y).sum(0), some(4, 6))
    with torch.autograd.graph.save_on_cpu():
        loss = net(x).sum()
    loss.backward()
    return [first.detach(), x.grad.clone(), jacobian]


def compiled():
    net = Net()
    net.compile(backend="eager")
    torch._dynamo.reset()
    return [net(some(4, 6)).detach(), once(CompiledNet)(some(4, 6)).detach(),
            torch.compile(lambda x: net.second(net.first(x)), backend="eager")(some(4, 6)).detach()]


def CompiledNet():
    net = Net()
    net.compile(backend="eager")
    net(some(4, 6))
    return net


def stored():
    net, place = Net(), io.BytesIO()
    torch.save(net, place)
    place.seek(0)
    try:
        again = torch.load(place, weights_only=False)
    except TypeError:
        place.seek(0)
        again = torch.load(place)
    other = copy.deepcopy(net)
    other.load_state_dict(again.state_dict())
    return [again(some(4, 6)).detach(), other(some(4, 6)).detach(), repr(net), str(dir(net)),
            torch.nn.utils.parameters_to_vector(other.parameters()).detach()]


def others():
    lazy = nn.Sequential(nn.LazyLinear(5), nn.LazyBatchNorm1d())
    attention = nn.TransformerEncoder(nn.TransformerEncoderLayer(6, 2, 8, batch_first=True), 2)
    recurrent = nn.LSTM(6, 4, batch_first=True)
    packed = nn.utils.rnn.pack_padded_sequence(some(2, 3, 6), torch.tensor([3, 2]),
                                               batch_first=True)
    bag = nn.EmbeddingBag(8, 3)
    found = [lazy(some(4, 6)).detach(), recurrent(packed)[0].data.detach(),
             bag(torch.tensor([[1, 2], [3, 4]])).detach(), str(lazy)]
    for training in (True, False):
        attention.train(training)
        torch.manual_seed(2)
        with torch.set_grad_enabled(training):
            found.append(attention(some(2, 3, 6)).detach())
    with torch.inference_mode():
        found.append(attention(some(2, 3, 6)).clone())
    return found


def profiled():
    net, modules = Net(), []
    with torch.profiler.profile(with_stack=True, with_modules=True) as profile:
        net(some(4, 6)).sum().backward()
    names = sorted(event.key for event in profile.key_averages())
    return [str([name for name in names if name.startswith("aten::")]), str(modules)]


def flops():
    from torch.utils.flop_counter import FlopCounterMode
    net = Net()
    with FlopCounterMode(display=False) as counter:
        net(some(4, 6)).sum().backward()
    with FlopCounterMode(net, display=False) as other:
        net(some(4, 6))
    return [str(counter.get_total_flops()), str(sorted(other.get_flop_counts()))]


class OwnCall(nn.Linear):
    def __call__(self, *args):
        calls["own"] += 1
        return super().__call__(*args) * 2


def replaced():
    """Somebody puts a __call__ of his own into Module, and takes it out again."""
    before = nn.Module.__call__

    def around(self, *args, **kwargs):
        calls["around"] += 1
        return before(self, *args, **kwargs)
    nn.Module.__call__ = around
    try:
        found = [Net()(some(4, 6)).detach(), OwnCall(6, 6)(some(4, 6)).detach()]
    finally:
        nn.Module.__call__ = before
    return found + [Net()(some(4, 6)).detach()]


def moments():
    """An optimizer of one's own, and one whose step is replaced on the instance."""
    class Own(torch.optim.SGD):
        def step(self, closure=None):
            calls["Own.step"] += 1
            return super().step(closure)
    net = Net()
    optimizer = Own(net.parameters(), lr=0.1)
    found = trained(net, optimizer)
    inner = optimizer.step

    def step(*args):
        calls["replaced step"] += 1
        return inner(*args)
    optimizer.step = step
    found += trained(net, optimizer)
    if hasattr(optimizer, "register_step_post_hook"):
        handle = optimizer.register_step_post_hook(lambda *a: calls.update(["hook"]))
        found += trained(net, optimizer)
        handle.remove()
    return found


PARTS = (optimizers, schedulers, kept_scheduler, averaged, parametrized, quantized,
         quantized_graph, traced_graph, jitted, exported, functional, gradients, compiled, stored,
         others, profiled, flops, replaced, moments)


def everything():
    calls.clear()
    found = {}
    for part in PARTS:
        torch.manual_seed(7)
        try:
            found[part.__name__] = part()
        except Exception as error:  # of a torch that has it not: with us, the same one
            found[part.__name__] = ["%s: %s" % (type(error).__name__, error)]
    found["calls"] = [str(sorted(calls.items()))]
    return found


def is_same(a, b):
    return torch.equal(a, b) if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) \
        else type(a) is type(b) and a == b


def different(before, now):
    return {name: [str(x) for x in now[name][:1]] for name in before
            if len(before[name]) != len(now[name])
            or not all(map(is_same, before[name], now[name]))}


everything()  # what is made once, is
before = everything()
failed = {name: found[0] for name, found in before.items()
          if len(found) == 1 and name != "calls"}


def again():
    return {"different": different(before, everything()), "failed": failed}


run(again)
